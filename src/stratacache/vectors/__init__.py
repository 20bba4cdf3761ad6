"""Indexes of stored questions by their vectors: exact, graph and compressed, in this process or on a server."""
