"""The HTTP face: a bare ASGI application, authentication, cache-control headers and admin endpoints."""
