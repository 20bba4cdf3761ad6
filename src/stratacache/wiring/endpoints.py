"""Builds the endpoints of models: one way for all dialects."""

from __future__ import annotations

from collections.abc import Mapping

from stratacache.dialects.clients import CLIENTS
from stratacache.gateway.app import Endpoint
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.chat import AnswerEndpoint
from stratacache.gateway.count_tokens import PATH as COUNT_TOKENS_PATH
from stratacache.gateway.count_tokens import CountTokens
from stratacache.gateway.embeddings import EmbeddingsEndpoint
from stratacache.gateway.prepare import Preparer
from stratacache.pipeline.serve import Pipeline
from stratacache.policy.fields import EMBEDDINGS
from stratacache.ports import Clock, Recorder, Upstream
from stratacache.settings import AnthropicSettings, Settings
from stratacache.upstream.router import Router


def answer_limits(settings: Settings) -> dict[str, int]:
    """The upstreams that speak Anthropic's API, and the ``max_tokens`` for clients that name none."""
    return {one.name: one.max_tokens for one in settings.upstreams if isinstance(one, AnthropicSettings)}


def answering(
    authenticator: Authenticator,
    preparer: Preparer,
    router: Router,
    upstreams: Mapping[str, Upstream],
    pipeline: Pipeline,
    recorder: Recorder,
    clock: Clock,
    settings: Settings,
) -> dict[str, Mapping[str, Endpoint]]:
    """Path to method to endpoint, for every dialect."""
    max_body = settings.server.max_body
    endpoints: dict[str, Mapping[str, Endpoint]] = {
        client.path: {"POST": AnswerEndpoint(client.endpoint, preparer, pipeline, clock, max_body=max_body)}
        for client in CLIENTS.values()
    }
    embeddings = EmbeddingsEndpoint(preparer, pipeline, clock, max_body=max_body)
    endpoints[CLIENTS[EMBEDDINGS].path] = {"POST": embeddings}
    speaks = answer_limits(settings)
    count = CountTokens(authenticator, preparer, router, upstreams, speaks, recorder, max_body=max_body)
    return {**endpoints, COUNT_TOKENS_PATH: {"POST": count}}
