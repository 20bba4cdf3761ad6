"""The server's own secret, which makes tenants' salts: from the environment, or a random one kept beside the store."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from stratacache.errors import SettingsError
from stratacache.settings import ONE_PROCESS, Settings, path_of, scheme_of, server_secret

LENGTH = 32  # bytes of a random secret, as long as the HMAC's digest
ELSEWHERE = Path(".stratacache/secret")
"""Where it is kept when the store is a server. Instances on several machines share one through the environment."""


def secret_of(settings: Settings, environ: Mapping[str, str]) -> bytes:
    """The secret: that of ``auth.secret_env``, else the one kept, made now if there is none.

    With a store in memory nothing outlives the process, and neither does the secret. Raises SettingsError when it can
    be neither read nor kept, or others could read it.
    """
    given = server_secret(settings, environ)
    if given is not None:
        return given
    path = path_of(settings.store)
    if path is not None:
        return kept_secret(path.with_name(path.name + ".secret"))
    if scheme_of(settings.store) in ONE_PROCESS:
        return secrets.token_bytes(LENGTH)
    return kept_secret(ELSEWHERE)


def kept_secret(path: Path) -> bytes:
    """The secret in the file ``path``, which only its owner may read; whoever comes first makes it."""
    try:
        if not path.exists():
            _make(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        secret = path.read_bytes()
    except OSError as error:
        raise SettingsError(f"the file {path}, which holds the server's secret: {error.strerror}") from error
    if mode & 0o077:
        raise SettingsError(f"the file {path} holds the server's secret and others may read it: chmod 600 it")
    if len(secret) < LENGTH:
        raise SettingsError(
            f"the file {path} holds no secret of {LENGTH} bytes: remove it and a new one is made"
        )
    return secret


def _make(path: Path) -> None:
    """Write a new secret in one step: several workers begin at the same time, and all must read the same one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(LENGTH))
            file.flush()
            os.fsync(file.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was first
    finally:
        draft.unlink()
