"""Its place is its purpose: pytest puts this folder on sys.path, so tests can import ``tests.clock``."""
