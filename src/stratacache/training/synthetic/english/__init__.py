"""The English rules."""

from . import context, entities, numbers, order, polarity, wording

RULES = numbers.RULES + polarity.RULES + entities.RULES + order.RULES + context.RULES + wording.RULES
