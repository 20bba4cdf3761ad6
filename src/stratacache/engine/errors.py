"""What the engine may raise, and the HTTP status and OpenAI error code that each one becomes.

EngineError
├── SettingsError         settings that cannot be, whatever the request
├── ModelUnavailable      no model file, or one that this engine cannot run
└── RequestError          the request's fault or the load's; has a status, a code and a parameter
    ├── InvalidRequest    400
    ├── ContextLengthExceeded  400, `context_length_exceeded`
    ├── UnsupportedFeature     400, `unsupported_parameter`
    ├── BodyTooLarge      413
    ├── DeadlineExceeded  504
    └── Overloaded        503, the waiting line is full or the engine is closing
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of everything the engine raises on purpose."""


class SettingsError(EngineError):
    """A setting is out of range, or two of them exclude each other."""


class ModelUnavailable(EngineError):
    """The model cannot be found, read or run; the message says what to do."""


class RequestError(EngineError):
    """A request that is refused. `param` names the field at fault, where there is one."""

    status = 400
    kind = "invalid_request_error"
    code: str | None = None

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(RequestError):
    """The body is not what the endpoint takes."""

    code = "invalid_value"


class UnsupportedFeature(RequestError):
    """The field is known and changes the answer, and this engine cannot honour it."""

    code = "unsupported_parameter"


class ContextLengthExceeded(RequestError):
    """The prompt can never fit: known at once, before anything is computed."""

    code = "context_length_exceeded"

    def __init__(self, limit: int, size: int, *, at_least: bool = False) -> None:
        """`limit` and `size` in tokens; `at_least` when the prompt was too long to be worth counting."""
        super().__init__(
            f"This engine's maximum context length is {limit} tokens, of which at least one is for the "
            f"answer. However, the messages resulted in {'at least ' if at_least else ''}{size} tokens.",
            "messages",
        )


class BodyTooLarge(RequestError):
    """The body is over the configured limit."""

    status = 413
    code = "request_too_large"


class DeadlineExceeded(RequestError):
    """The request's time is over; what was computed of it is dropped."""

    status = 504
    kind = "server_error"
    code = "deadline_exceeded"


class Overloaded(RequestError):
    """No room in the waiting line, or the engine is shutting down; the client may retry."""

    status = 503
    kind = "server_error"
    code = "overloaded"
