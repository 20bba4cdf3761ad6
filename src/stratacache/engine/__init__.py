"""The embedded engine: our own paged-KV language-model server, stand-alone, in PyTorch.

Nothing is imported here, so that `import stratacache.engine` costs nothing: torch arrives with
`stratacache.engine.engine` (the core) or `stratacache.engine.server` (HTTP around the core).
"""
