"""The wire dialects: turn a protocol's JSON and event streams into our values and back. Pure: no I/O."""
