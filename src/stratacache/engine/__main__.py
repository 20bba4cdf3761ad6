"""`python -m stratacache.engine`: the engine as a server of its own."""

from __future__ import annotations

import argparse
import sys

from stratacache.engine.command import add_arguments, run_from_args


def main() -> int:
    """Parses the command line and serves."""
    parser = argparse.ArgumentParser(
        prog="python -m stratacache.engine",
        description="Serve SmolLM2-135M over OpenAI's chat protocol from a paged-KV engine.",
        epilog="example: python -m stratacache.engine --port 8901 --kv-memory 1GiB",
    )
    add_arguments(parser)
    return run_from_args(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
