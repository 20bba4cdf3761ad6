"""Its place puts this folder on sys.path, so tests can import ``tests.clock``; no property test has a time limit."""

import os

from hypothesis import HealthCheck, settings

# Several test processes share the cores, and PyTorch's threads would wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis fails an example that takes 200 ms, which on a busy machine says nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
