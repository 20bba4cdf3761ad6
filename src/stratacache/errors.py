"""The exception tree.

StrataError
├── SettingsError      a configuration value is refused at start
├── RequestError       the client's request is refused (4xx in the client's dialect)
├── UpstreamError      the upstream could not be reached or broke off (502/504)
├── AnswerError        in-process use: the answer is an error, with its status
├── ModelError         an embedder or verifier failed; the semantic tier is passed over
├── VectorIndexError   an index failed; the same
└── StoreError         a store failed; the pipeline turns it into a miss
    ├── StoreSlow      it did not answer in time
    ├── LogGap         a reader of the question log starts over
    └── StoreDown      it is left alone for a while, as it failed too often
"""

from __future__ import annotations

from collections.abc import Mapping


class StrataError(Exception):
    """Base of every error that Stratacache raises on purpose."""


class SettingsError(StrataError):
    """A configuration value is refused; the message names the key, the line and the nearest valid name."""


class RequestError(StrataError):
    """A request is refused.

    Args:
        message: what is wrong and what to do.
        status: HTTP status, 400 to 599.
        param: where, as a path into the body (``messages[2].role``) or a header's name.
        code: a stable word for programs, such as ``invalid_json``.
        headers: further response headers, such as ``retry-after``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str = "invalid_request",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.headers = headers


class UpstreamError(StrataError):
    """The upstream gave no usable answer: connection refused, timed out, or broke off.

    Args:
        message: what happened, without secrets.
        status: what the client is told, 502, 503 or 504.
        code: ``upstream_unreachable``, ``upstream_timeout``, ``upstream_cut``, ``upstream_malformed`` or
            ``upstream_starting``.
    """

    def __init__(self, message: str, *, status: int = 502, code: str = "upstream_unreachable") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code


class AnswerError(StrataError):
    """A request made in-process was answered with an error, by the gateway or by the upstream.

    Args:
        message: the error's own words.
        status: HTTP status, 400 to 599.
        code: the error's word for programs, "" when it has none.
        headers: of the answer, lower-case names.
    """

    def __init__(self, message: str, *, status: int, code: str, headers: Mapping[str, str]) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.headers = headers


class ModelError(StrataError):
    """A model gave no usable result. ``code`` is the reason for which the semantic tier is passed over.

    Args:
        message: what happened, without the text of any question.
        code: such as ``embedder_error``, ``verifier_error`` or ``overloaded``.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code


class VectorIndexError(StrataError):
    """An operation of a vector index failed; the semantic tier is passed over."""

    code = "index_error"


class StoreError(StrataError):
    """A store operation failed; the caller treats it as a miss and counts it. ``code`` is the miss's reason."""

    code = "store_error"


class StoreSlow(StoreError):
    """A store did not answer within its budget."""

    code = "store_slow"


class StoreDown(StoreError):
    """A store is not asked at present, since it failed too often of late."""

    code = "store_down"


class LogGap(StoreError):
    """What followed a position of the question log is not known any more: the reader starts over at the oldest kept."""

    code = "log_gap"
