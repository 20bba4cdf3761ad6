"""How sure one must be to serve a stored answer to another question, so that errors stay below what is allowed."""
