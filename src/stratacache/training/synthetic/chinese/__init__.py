"""The Chinese rules."""

from ..pair import Rule

RULES: tuple[Rule, ...] = ()
