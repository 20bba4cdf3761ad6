"""Run the embedded engine alone: an OpenAI-compatible server for the packaged model."""

from __future__ import annotations

import argparse

from stratacache.engine import command

EXAMPLE = """example:
  stratacache engine --port 8901
  curl -s http://127.0.0.1:8901/v1/models"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    command.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    return command.run_from_args(args)
