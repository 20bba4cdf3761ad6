"""Run every benchmark, one after the other: ``python -m benchmarks``."""

from __future__ import annotations

import importlib
import pkgutil

import benchmarks

for found in sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__)):
    module = importlib.import_module(f"benchmarks.{found}") if not found.startswith("_") else None
    if hasattr(module, "COMMAND"):
        print(f"== {module.COMMAND}", flush=True)
        module.main()
