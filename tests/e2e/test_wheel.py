"""The wheel holds all that the gateway reads at run time and nothing else, and runs where nothing else of ours is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = (
    "py.typed", "models/weights/verifier/model.onnx", "models/weights/verifier/MODEL.md",
    "policy/cacheability/weights.bin",
    "policy/cacheability/head.npz", "settings/providers.yaml", "settings/prices.yaml",
    "gateway/dashboard/static/index.html",
)  # fmt: skip

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, ROOT], check=True, cwd=folder
    )
    (made,) = folder.glob("*.whl")
    return made


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(
        ["git", "ls-files", "src/stratacache"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert names == {line.removeprefix("src/") for line in tracked.stdout.splitlines()}
    assert {f"stratacache/{name}" for name in NEEDED} <= names
    assert wheel.stat().st_size < 60 << 20


def test_what_is_unpacked_runs(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        file.extractall(tmp_path)
    for arguments in (["--version"], ["config", "--json"], ["lint", "--help"]):
        done = subprocess.run(
            [sys.executable, "-m", "stratacache.cli", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
