"""Fake model servers that hold to the real ones' rules, for tests of applications and of Stratacache itself."""

from stratacache.testing.anthropic import AnthropicFake, ApiError, Message
from stratacache.testing.openai import ChatError, Completion, OpenAIFake
from stratacache.testing.openai_cache import OpenAICache, OpenAIUsage
from stratacache.testing.prompt_cache import CacheUsage, PromptCache, minimum_of
from stratacache.testing.server import Call, FakeServer, Gate, in_thread

__all__ = [
    "AnthropicFake",
    "ApiError",
    "CacheUsage",
    "Call",
    "ChatError",
    "Completion",
    "FakeServer",
    "Gate",
    "Message",
    "OpenAICache",
    "OpenAIFake",
    "OpenAIUsage",
    "PromptCache",
    "in_thread",
    "minimum_of",
]
