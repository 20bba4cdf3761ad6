"""Decisions about prompts at a provider: their segments, what is stable in them, where prefixes part; pure."""
