"""Pure decisions: no I/O, clock, randomness or network; each answers with a reason or a value."""
