"""``GET /dashboard``: a page of plain files that asks the administrator's endpoints; it holds no data itself."""

from __future__ import annotations

from importlib import resources

from stratacache.errors import RequestError
from stratacache.gateway.auth import Authenticator
from stratacache.gateway.http import ASGIScope, RawHeaders, Receive, Send, send_body
from stratacache.gateway.prepare import join_headers

PATH = "/dashboard"
TYPES = {
    "html": b"text/html; charset=utf-8",
    "css": b"text/css; charset=utf-8",
    "js": b"text/javascript; charset=utf-8",
}
_POLICY = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    b"frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
_HEADERS: RawHeaders = [
    (b"content-security-policy", _POLICY),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]


class Dashboard:
    """Serves the files of the package's ``static`` folder, by name, from memory."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self._files = {
            file.name: (TYPES[file.name.rpartition(".")[2]], file.read_bytes())
            for file in (resources.files(__package__) / "static").iterdir()
        }

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Everybody may have the files; without keys that is everybody on this machine, as for all else."""
        if self._authenticator.open:
            self._authenticator.identify(join_headers(scope["headers"]), "admin")
        name = scope["path"].removeprefix(PATH).removeprefix("/")
        found = self._files.get(name or "index.html")
        if scope["path"] == f"{PATH}/":
            # The page names its files and the endpoints by where it stands, which holds behind a proxy's prefix too.
            await send_body(send, 308, [(b"location", b"../dashboard")], b"")
            return
        if found is None:
            raise RequestError(f"there is nothing at {scope['path'][:200]}", status=404, code="not_found")
        kind, body = found
        await send_body(send, 200, [(b"content-type", kind), *_HEADERS], body)
