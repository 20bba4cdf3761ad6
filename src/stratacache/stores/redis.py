"""All that a Redis URL gives: the store, news for copies, single-flight across instances, what was asked."""

from __future__ import annotations

from functools import partial

from stratacache.ports import Clock
from stratacache.stores.backend import Backend
from stratacache.stores.redis_bulletin import RedisBulletin
from stratacache.stores.redis_log import RedisQuestionLog
from stratacache.stores.redis_nodes import connect
from stratacache.stores.redis_questions import RedisQuestions
from stratacache.stores.redis_relay import RedisRelay
from stratacache.stores.redis_store import RedisStore
from stratacache.stores.redis_url import parse_redis_url


def open_redis(url: str, clock: Clock) -> Backend:
    """Connects to nothing yet; raises SettingsError when the URL or a file that it names is no good."""
    nodes = connect(parse_redis_url(url))
    store = RedisStore(nodes, clock)
    store.announcer = bulletin = RedisBulletin(nodes, store.raise_floors)
    questions = partial(RedisQuestions, nodes)
    return Backend(store, questions, bulletin, RedisRelay(nodes), RedisQuestionLog(nodes, clock), store)
