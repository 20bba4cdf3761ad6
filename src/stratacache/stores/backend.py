"""What a store URL gives, whatever the backend."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stratacache.ports import Bulletin, Listing, QuestionFilter, QuestionLog, Relay, Store
from stratacache.stores.bloom import BloomFilter


class Backend(msgspec.Struct, frozen=True):
    """What one store URL gives.

    ``bulletin``: news of other instances' invalidations, None when there is no other instance or no news, and then a
    near cache is useless or unsafe. ``relay``: single-flight across instances, None when there is no other.
    ``questions`` makes, from its capacity and error, the filter of questions handled, shared by the instances where the
    store can. ``question_log``: the questions that the semantic tier may find, for all instances; None when there is no
    other instance, or the store can keep none: then a log in memory does. ``listing``: the store again, where it can
    name its entries; None where it cannot.
    """

    store: Store
    questions: Callable[[int, float], QuestionFilter] = BloomFilter
    bulletin: Bulletin | None = None
    relay: Relay | None = None
    question_log: QuestionLog | None = None
    listing: Listing | None = None
