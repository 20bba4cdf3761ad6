"""What every benchmark shares: medians, the machine it ran on, and where raw figures go."""

from __future__ import annotations

import platform
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

RESULTS = Path(__file__).parent / "results"


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def machine() -> dict[str, Any]:
    """Processor, cores, Python and commit: what a figure must be read beside."""
    cpu = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.partition(":")[2].strip()
                break
        cores = sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
    except OSError:
        cores = 0
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {"cpu": cpu, "cores": cores, "python": platform.python_version(), "commit": commit.stdout.strip()}


def write(name: str, command: str, figures: dict[str, Any]) -> Path:
    """Write raw figures with their command and machine; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    value = {"command": command, "machine": machine(), **figures}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    return path
