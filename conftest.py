"""Its place puts this folder on sys.path, so tests can import ``tests.clock``; no property test has a time limit."""

from hypothesis import HealthCheck, settings

# Hypothesis fails an example that takes 200 ms, which on a busy machine says nothing about the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")
