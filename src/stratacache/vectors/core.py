"""What a large partition is searched with: a structure over rows of the index, built aside and kept up to date."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stratacache.vectors.rows import Slots


class Core(Protocol):
    """An approximate index of rows by their vectors, which stay where they are. All methods are for worker threads;
    ``search`` may run beside ``apply`` and ``save``, and two ``apply`` may not."""

    kind: str

    def search(self, query: NDArray[np.float32], count: int) -> Slots:
        """About the ``count`` nearest rows, in no order; may hold rows twice."""
        ...

    def apply(self, added: Slots, removed: Slots) -> None:
        """Take rows in, and others out. ``removed`` rows that are not there are no error."""
        ...

    def slots(self) -> Slots:
        """The rows in it, in no order."""
        ...

    def save(self, path: Path) -> None:
        """Write it to the new file ``path``; its own format, without a checksum."""
        ...

    def memory(self) -> int:
        """Memory beside the vectors, estimated."""
        ...


Build = Callable[[Slots, Callable[[], bool]], Core]
"""Makes a core of rows; the second argument says whether to give up, which raises ``Abandoned``."""

Load = Callable[[Path], Core]
"""Opens what ``save`` wrote; called only after its checksum was found right."""


class Abandoned(Exception):
    """A build was given up, as the index is being closed."""
