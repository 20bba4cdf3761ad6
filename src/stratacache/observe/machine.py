"""What the machine gives this process."""

from __future__ import annotations

import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def usable_cores(quota: Path = _QUOTA) -> float:
    """CPU cores that this process may use: by its affinity, and by the quota of its container (cgroup v2)."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    try:
        allowed, _, period = quota.read_text().partition(" ")
        return min(cores, int(allowed) / int(period))
    except (OSError, ValueError):  # no such file outside a container; "max" is no number
        return cores
