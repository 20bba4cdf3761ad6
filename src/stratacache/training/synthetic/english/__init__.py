"""The English rules."""

from stratacache.training.synthetic.english import context, entities, numbers, order, polarity
from stratacache.training.synthetic.english.wording import RULES as WORDING
from stratacache.training.synthetic.pair import Rule

RULES: tuple[Rule, ...] = (
    numbers.RULES + polarity.RULES + entities.RULES + order.RULES + context.RULES + WORDING
)
