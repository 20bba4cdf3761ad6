"""Ways into the cache without a server between: an HTTP transport, a decorator, LangChain, LlamaIndex."""
