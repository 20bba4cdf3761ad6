"""Keeping answers true: what an administrator invalidates, and the record of it."""
