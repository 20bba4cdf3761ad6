"""Side-by-side measurements: each module prints a table and writes its raw figures to ``benchmarks/results``."""
