"""The ``stratacache`` command: global options, and one module of ``stratacache.commands`` per command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from stratacache import __version__
from stratacache.commands import (
    calibrate,
    config,
    demo,
    doctor,
    engine,
    explain,
    export,
    import_,
    invalidate,
    lint,
    load,
    plan,
    reindex,
    review,
    serve,
    stats,
    train_verifier,
    warm,
)
from stratacache.errors import SettingsError, StrataError

COMMANDS = (
    serve,
    demo,
    engine,
    doctor,
    stats,
    explain,
    export,
    import_,
    warm,
    invalidate,
    lint,
    calibrate,
    load,
    plan,
    reindex,
    review,
    config,
    train_verifier,
)

EXIT_FOUND, EXIT_USAGE = 1, 2


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="stratacache",
        description="A caching gateway for LLM services.",
        epilog="Exit codes: 0 all is well, 1 something was found or failed, 2 wrong usage or configuration.",
    )
    parser.add_argument("--version", action="version", version=f"stratacache {__version__}")
    _add_config(parser, default=None)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2].strip("_").replace("_", "-")
        first_line, _, _ = (module.__doc__ or "").partition("\n")
        command = commands.add_parser(
            name,
            help=first_line,
            description=first_line,
            epilog=module.EXAMPLE,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        # Said after the command it counts as well; left out, it must not undo what was said before it.
        _add_config(command, default=argparse.SUPPRESS)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _add_config(parser: argparse.ArgumentParser, *, default: str | None) -> None:
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=default,
        help="configuration (default: ./stratacache.yaml if there is one, else built-in embedded defaults)",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = build_parser().parse_args(argv)
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except SettingsError as error:
        print(f"stratacache: {error}", file=sys.stderr)
        return EXIT_USAGE
    except StrataError as error:
        print(f"stratacache: {error}", file=sys.stderr)
        return EXIT_FOUND
    except BrokenPipeError:
        # Whoever read our output has had enough, as in "| head"; nor may the flush at exit complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FOUND
    except KeyboardInterrupt:
        return 130
    return code


if __name__ == "__main__":
    sys.exit(main())
