"""Trains the cacheability classifier from the questions beside it."""
