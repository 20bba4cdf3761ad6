"""Embed all stored questions of a running gateway anew, while the old index serves."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.types import JSON

EXAMPLE = """example:
  stratacache reindex              begin; the gateway does it in the background
  stratacache reindex --wait       begin, and wait until it is done
  stratacache reindex --status     how far it is, or how the last one ended

The new index has the vectors of the embedder that the gateway was configured with. Questions whose answer is gone are
left out, and those that the old index had lost are taken in. A gateway that finds vectors of another embedder at its
start does the same by itself."""

POLL = 0.5  # seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--wait", action="store_true", help="return when it is done; exit code 1 if it fails")
    what.add_argument("--status", action="store_true", help="begin nothing, only tell")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    method = "GET" if args.status else "POST"
    told = ask_gateway(args, method, "/admin/reindex", None if args.status else b"{}", member="state")
    while args.wait and told["state"] == "running":
        if not args.json and sys.stderr.isatty():
            print(f"\r{_in_words(told)}", end="", file=sys.stderr, flush=True)
        time.sleep(POLL)
        told = ask_gateway(args, "GET", "/admin/reindex", member="state")
    if args.wait and not args.json and sys.stderr.isatty():
        print(file=sys.stderr)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print(_in_words(told))
    return 1 if told["state"] == "failed" else 0


def _in_words(told: JSON) -> str:
    counts = f"{told['done']:,} of {told['total']:,} questions embedded anew"
    failed = f", {told['failed']:,} could not be" if told["failed"] else ""
    words = {
        "idle": "nothing was embedded anew since the gateway started",
        "running": f"running: {counts}{failed}",
        "done": f"done: {counts}{failed}, by {told['fingerprint']}",
        "failed": f"failed: {told['reason']}; the index is as it was",
    }
    return words[told["state"]]
