"""Stratacache: four cache layers in front of, and inside, an LLM service."""

__version__ = "0.1.0"
