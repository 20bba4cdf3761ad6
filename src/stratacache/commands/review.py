"""Look at semantic answers and near misses of a running gateway, and say whether they are right."""

from __future__ import annotations

import argparse
import sys
from typing import TextIO
from urllib.parse import urlencode

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.types import JSON

EXAMPLE = """example:
  stratacache review
  stratacache review --tenant acme --limit 5
  stratacache review --json

keys: r the stored answer serves the question, w it does not, s skip, q quit.
A hit that is called wrong is gone at once, from both tiers and all instances."""

VERDICTS = {"r": "right", "w": "wrong", "s": "skip"}
_KINDS = {
    "hit": "SERVED",
    "shadow_hit": "WOULD HAVE BEEN SERVED (shadow)",
    "near_miss": "NOT SERVED",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="pairs, up to 100 (default: %(default)s)"
    )
    parser.add_argument("--tenant", help="only pairs of this tenant")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    query = {"limit": args.limit, **({"tenant": args.tenant} if args.tenant else {})}
    told = ask_gateway(args, "GET", f"/admin/review?{urlencode(query)}", member="items")
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return 0
    items = told["items"]
    done = 0
    for number, item in enumerate(items, 1):
        print(_in_words(item, f"{number}/{len(items)}"))
        key = read_key(sys.stdin, sys.stdout)
        if key == "q":
            break
        sent = msgspec.json.encode({"id": item["id"], "verdict": VERDICTS[key]})
        answer = ask_gateway(args, "POST", "/admin/review", sent, member="verdict")
        done += 1
        print(f"{answer['verdict']}{', the answer is gone' if answer['removed'] else ''}\n")
    waiting = sum(told["lengths"].values())
    print(f"{done} of {waiting} pairs worked off" if items else "nothing waits")
    return 0


def read_key(keyboard: TextIO, screen: TextIO) -> str:
    """One of ``r``, ``w``, ``s`` and ``q``: a key at a terminal, else the first letter of a line; the end is ``q``."""
    while True:
        screen.write("[r]ight  [w]rong  [s]kip  [q]uit > ")
        screen.flush()
        got = _read_terminal(keyboard) if keyboard.isatty() else keyboard.readline()
        key = got.strip()[:1].lower() if got else "q"
        if key in VERDICTS or key == "q":
            return key
        screen.write("\n")


def _read_terminal(keyboard: TextIO) -> str:
    """One key without Enter; Ctrl-C interrupts as ever, Ctrl-D is the end."""
    import termios
    import tty

    before = termios.tcgetattr(keyboard)
    try:
        tty.setcbreak(keyboard, termios.TCSADRAIN)  # keeps what was typed ahead
        got = keyboard.read(1)
    finally:
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
    return "" if got == "\x04" else got + " "


def _in_words(item: JSON, place: str) -> str:
    probability = "-" if item["probability"] is None else f"{item['probability']:.3f}"
    why = f" ({item['reason']})" if item["reason"] else ""
    head = f"{place}  {_KINDS[item['kind']]}{why}  probability {probability}  similarity {item['similarity']:.3f}"
    where = f"tenant {item['tenant']}, scene {item['scene']}, entry {item['entry']}"
    lines = [head, f"  {where}", f"  asked:   {item['asked']}", f"  stored:  {item['stored']}"]
    lines.append(f"  answer:  {item['answer']}")
    lines += [f"  guard:   {finding}" for finding in item["guards"]]
    return "\n".join(lines)
