"""A fake upstream and a gateway before it, for the tests that need no other arrangement."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.fakes.upstream import FakeUpstream
from tests.harness import Gateway, running_gateway


@pytest.fixture
async def fake() -> AsyncIterator[FakeUpstream]:
    async with FakeUpstream() as server:
        yield server


@pytest.fixture
async def gateway(fake: FakeUpstream) -> AsyncIterator[Gateway]:
    async with running_gateway(fake) as running:
        yield running
