"""Show what a running gateway would do with a request, and why; calls no model."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.errors import StrataError
from stratacache.types import JSON

EXAMPLE = """example:
  echo '{"model": "smollm2-135m", "messages": [{"role": "user", "content": "Hi!"}]}' | stratacache explain -
  stratacache explain request.json --path /v1/messages --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the request body as JSON, '-' for standard input")
    parser.add_argument(
        "--path",
        default="/v1/chat/completions",
        help="where it would be sent, such as /v1/messages or /v1/responses (default: %(default)s)",
    )
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    try:
        body = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except OSError as error:
        raise StrataError(f"cannot read {args.file}: {error.strerror}") from None
    told = ask_gateway(args, "POST", f"/admin/explain?{urlencode({'path': args.path})}", body, member="tiers")
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    else:
        print(_in_words(told))
    return 0


def _in_words(told: JSON) -> str:
    exact = told["tiers"]["exact"]
    age = f", {exact['age']:.0f} s old" if "age" in exact else ""
    lines = [
        f"model      {told['model']} -> {told['resolved_model']} at {told['upstream']}",
        f"tenant     {told['tenant']}, scene {told['scene']}",
        f"entry      {told['entry']}",
        f"exact      {exact['outcome']} ({exact['reason']}{age})",
        *_semantic_in_words(told["tiers"]["semantic"]),
        *_prompt_in_words(told["tiers"]["prompt"]),
        f"upstream   {_upstream(told)}",
        f"store      {'yes' if told['would_store'] else 'no'}, for {told['ttl_seconds']:g} s",
        "key        what must be equal for a hit:",
        msgspec.json.format(msgspec.json.encode(told["key"])).decode(),
    ]
    return "\n".join(lines)


def _upstream(told: JSON) -> str:
    if told["would_call_upstream"]:
        return "would be called"
    away = told["turned_away"]
    return (
        f"would not be called; a question that is new is turned away ({away})"
        if away
        else "would not be called"
    )


def _semantic_in_words(semantic: JSON) -> list[str]:
    """The verdict, what the question is, and each candidate with all that was found out about it."""
    mode = "" if semantic["mode"] == "serve" else f", mode {semantic['mode']}"
    lines = [f"semantic   {semantic['outcome']} ({semantic['reason']}{mode})"]
    if semantic.get("kind"):
        language = f", {semantic['language']}" if semantic["language"] else ""
        risk = f", risk {semantic['risk']}" if semantic["risk"] else ""
        lines.append(f"  question   {semantic['kind']} ({semantic['why']}){language}{risk}")
    bound = semantic.get("bound")
    if bound:
        lines.append(f"  bound      probability {bound['adjusted']:.4f}, needed {bound['threshold']:.4f}")
    for look in semantic.get("looks", ()):
        probability, alone = look["probability"], look["verified"]
        read = "" if alone is None else f", verified {alone:.4f}"
        verified = "" if probability is None else f"{read}, probability {probability:.4f}"
        lines.append(f"  {look['similarity']:.4f}     {look['question']}")
        verdict = look["verdict"] or "not looked at further"
        lines.append(f"             guards: {look['guards']}{verified}: {verdict}")
        lines += [f"             {finding}" for finding in look["findings"]]
    return lines


def _prompt_in_words(prompt: JSON) -> list[str]:
    """What would be done for the provider's prompt cache."""
    lines = [f"prompt     {prompt['outcome']} ({prompt['reason']})"]
    for mark in prompt.get("marks", ()):
        again = ", ".join(f"{chance:.2f}" for chance in mark["chances"])
        lines.append(
            f"  mark     {mark['at']} for {mark['ttl']}: {mark['tokens']} tokens, again with chance {again}"
        )
    return lines
