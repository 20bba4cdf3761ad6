"""Recipes that make the weights of the semantic tier. Needs the extra `train`; the gateway imports none of it."""
