"""Print the effective settings with secrets masked, or their JSON Schema."""

from __future__ import annotations

import argparse
import os

import msgspec
import yaml

from stratacache.settings import json_schema, load

EXAMPLE = """example:
  stratacache config                     what would run, as YAML
  stratacache --config prod.yaml config --json
  stratacache config --schema > stratacache.schema.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--schema", action="store_true", help="print the JSON Schema of the configuration file"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of YAML")


def run(args: argparse.Namespace) -> int:
    shown = json_schema() if args.schema else load(args.config, os.environ).masked()
    if args.json or args.schema:
        print(msgspec.json.format(msgspec.json.encode(shown)).decode())
    else:
        print(yaml.safe_dump(shown, sort_keys=False, allow_unicode=True), end="")
    return 0
