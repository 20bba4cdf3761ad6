"""Makes ``from tests.clock import FakeClock`` work from every test, whatever else is called ``tests``."""
