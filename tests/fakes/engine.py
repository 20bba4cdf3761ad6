"""A stand-in for the engine's process: ``python engine.py PLAN.json`` does what its run's number says.

PLAN.json is a list of behaviours, one a run (the last one repeats); the file ``PLAN.json.runs`` counts the runs:

- ``serve``: announce a port and answer ``/v1/chat/completions``, ``/healthz`` and ``/stats``; exit with code 3
  on ``POST /v1/die``
- ``stubborn``: serve, and ignore SIGTERM
- ``crash``: write to stderr and exit with code 7
- ``mute``: never become ready
- ``noisy``: write more to both pipes than they hold, then serve
"""

from __future__ import annotations

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        figures = {"blocks_total": 8, "blocks_free": 5, "blocks_cached": 2, "blocks_active": 1, "steps": 9}
        self._answer({"/healthz": {"status": "ok"}, "/stats": figures}.get(self.path))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/v1/die":
            print("Out of ideas.", file=sys.stderr, flush=True)
            os._exit(3)
        self._answer({"pid": os.getpid(), "body": json.loads(body)})

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(404 if value is None else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing: stderr is part of the test."""


def serve() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print("loading ...", flush=True)
    print(json.dumps({"ready": True, "port": server.server_port, "model": "fake"}), flush=True)
    server.serve_forever()


def main(plan_file: Path) -> None:
    plan = json.loads(plan_file.read_text())
    runs_file = plan_file.with_name(plan_file.name + ".runs")
    run = len(runs_file.read_text()) if runs_file.exists() else 0
    runs_file.write_text("x" * (run + 1))
    behaviour = plan[min(run, len(plan) - 1)]
    if behaviour == "crash":
        print("first words", file=sys.stderr)
        print("weights are missing", file=sys.stderr)
        sys.exit(7)
    if behaviour == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if behaviour == "mute":
        signal.pause()
    if behaviour == "noisy":
        print("x" * 300_000, file=sys.stderr)
        print("y" * 300_000, "\n{}", flush=True)
    serve()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
