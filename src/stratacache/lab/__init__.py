"""Instruments: what measures and shows the cache, over HTTP like any client."""
