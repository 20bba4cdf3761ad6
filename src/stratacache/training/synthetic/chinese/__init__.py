"""The Chinese rules."""

from . import context, numbers, order, polarity

RULES = numbers.RULES + polarity.RULES + order.RULES + context.RULES
