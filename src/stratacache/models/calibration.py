"""A calibration of one's own for a verifier: the file that ``stratacache calibrate`` writes and the gateway loads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from stratacache.errors import SettingsError
from stratacache.policy.calibration import Calibration, Sigmoid

FORMAT = 1
MAX_BYTES = 1 << 20


class CalibrationFile(msgspec.Struct, frozen=True):
    """``verifier`` is the fingerprint of the one whose logits it is for; ``pairs`` by language, that it was made of.

    ``languages`` and ``embedders`` as in ``policy.calibration.Calibration``.
    """

    format: int
    verifier: str
    languages: Mapping[str, Sigmoid]
    pairs: Mapping[str, int] = {}
    embedders: Mapping[str, Mapping[str, Sigmoid]] = {}

    @property
    def calibration(self) -> Calibration:
        """Raises ValueError when it is of no use."""
        return Calibration(self.languages, self.embedders)


def read_calibration(path: Path) -> CalibrationFile:
    """The file at ``path``.

    Raises:
        SettingsError: it is not there or damaged, or of a format that this version does not know; names the file.
    """
    try:
        with path.open("rb") as file:
            found = msgspec.json.decode(file.read(MAX_BYTES), type=CalibrationFile)
        if found.format != FORMAT:
            raise ValueError(f"it has format {found.format}, and this version knows {FORMAT}")
        _ = found.calibration
    except OSError as error:
        raise SettingsError(f"tiers.semantic.calibration: {path}: {error.strerror}") from None
    except ValueError as error:  # msgspec's are ValueErrors too
        raise SettingsError(
            f"tiers.semantic.calibration: {path} is no calibration: {error}; write it with 'stratacache calibrate'"
        ) from None
    return found


def write_calibration(path: Path, calibration: CalibrationFile) -> None:
    """Write it, all or nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    try:
        new.write_bytes(msgspec.json.format(msgspec.json.encode(calibration)) + b"\n")
        os.replace(new, path)
    except OSError:
        with contextlib.suppress(OSError):
            new.unlink()
        raise
