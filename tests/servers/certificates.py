"""TLS certificates of an authority made for one test run."""

from __future__ import annotations

import ssl
from pathlib import Path

import trustme


class Certificates:
    """PEM files in ``folder``: the authority, a server on 127.0.0.1 and localhost, and a client that it signed."""

    def __init__(self, folder: Path) -> None:
        authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.cert, self.key = folder / "server.pem", folder / "server.key"
        self.client_cert, self.client_key = folder / "client.pem", folder / "client.key"
        authority.cert_pem.write_to_path(str(self.ca))
        server = authority.issue_cert("127.0.0.1", "localhost")
        client = authority.issue_cert("client@stratacache.example")
        for issued, cert, key in ((server, self.cert, self.key), (client, self.client_cert, self.client_key)):
            issued.cert_chain_pems[0].write_to_path(str(cert))
            issued.private_key_pem.write_to_path(str(key))

    def client_context(self) -> ssl.SSLContext:
        """For a client that trusts the authority only and shows its own certificate."""
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(self.client_cert, self.client_key)
        return context
