"""The settings of the semantic tier."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from stratacache.settings.section import MIB, MODEL, MODEL_PATTERN, Section, duration, meta, size


class SemanticSettings(Section, frozen=True, kw_only=True):
    """L2: the meaning repeats."""

    enabled: Annotated[
        bool, Meta(description="keep and look for questions that ask the same in other words")
    ] = True
    mode: Annotated[
        Literal["serve", "shadow", "off"],
        Meta(description="answer; only observe what it would answer; or neither, and keep nothing"),
    ] = "serve"
    max_error: Annotated[
        float,
        meta(
            "share of requests that may get a wrong answer", "a number from 0.0001 to 0.2", ge=0.0001, le=0.2
        ),
    ] = 0.01
    embedder: Annotated[
        str,
        Meta(description="default, sentence-transformers:FOLDER, or the URL of an /v1/embeddings server"),
    ] = "default"
    embedder_model: (
        Annotated[str, meta("model that the embeddings server is asked for", MODEL, pattern=MODEL_PATTERN)]
        | None
    ) = None
    embedder_dimension: (
        Annotated[
            int,
            meta(
                "numbers in a vector of the embeddings server",
                "a whole number from 2 to 8192",
                ge=2,
                le=8192,
            ),
        ]
        | None
    ) = None
    embedder_key_env: Annotated[
        str | None,
        meta(
            "environment variable that holds the embeddings server's key",
            "the NAME of an environment variable: upper-case letters, digits and '_'",
        ),
    ] = None
    verifier: Annotated[str, Meta(description="default, or a folder that train-verifier wrote")] = "default"
    calibration: Annotated[
        str | None, Meta(description="file that calibrate wrote; null for the verifier's own calibration")
    ] = None
    index: Annotated[
        str,
        Meta(
            description="auto or ivfpq, which needs less memory, in this process; or a vector server: redis://host, milvus://host"
        ),
    ] = "auto"
    index_max_bytes: Annotated[int, size("memory for an index in this process", MIB)] = 512 * MIB
    candidates: Annotated[
        int, meta("nearest questions that are examined", "a whole number from 1 to 50", ge=1, le=50)
    ] = 10
    floor: Annotated[
        float, meta("a candidate's cosine is at least this", "a number from 0 to 1", ge=0, le=1)
    ] = 0.5
    verify: Annotated[
        int, meta("candidates that are verified at most", "a whole number from 1 to 10", ge=1, le=10)
    ] = 3
    budget: Annotated[float, duration("a look-up that takes longer is a miss", 0.001, 60)] = 0.25
    threads: Annotated[
        int, meta("threads for the models of each process", "a whole number from 1 to 64", ge=1, le=64)
    ] = 2
    queue: Annotated[
        int,
        meta("calls that may wait for a model thread", "a whole number from 0 to 10000", ge=0, le=10_000),
    ] = 64
    judge: (
        Annotated[
            str, meta("model that settles what comparing answers leaves open", MODEL, pattern=MODEL_PATTERN)
        ]
        | None
    ) = None
    judge_per_minute: Annotated[
        int,
        meta("questions to the judge", "a whole number from 1 to 100000", ge=1, le=100_000),
    ] = 10
    corroboration: Annotated[
        int,
        meta(
            "other callers who must have got an agreeing answer before one caller's answer serves another",
            "a whole number from 0 to 10",
            ge=0,
            le=10,
        ),
    ] = 0
    inserts_per_minute: Annotated[
        int,
        meta(
            "questions of one caller that are kept per minute; 0 for no limit",
            "a whole number from 0 to 1000000",
            ge=0,
            le=1_000_000,
        ),
    ] = 600
