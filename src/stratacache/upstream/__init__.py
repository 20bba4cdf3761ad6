"""Model servers: a client for OpenAI-compatible ones, the supervised embedded engine, the router."""
