"""The Chinese rules."""

from stratacache.training.synthetic.chinese import context, numbers, order, polarity, wording
from stratacache.training.synthetic.pair import Rule

RULES: tuple[Rule, ...] = numbers.RULES + polarity.RULES + order.RULES + context.RULES + wording.RULES
