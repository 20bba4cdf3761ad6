"""Make entries of a running gateway unusable, by tag, id or tenant, or show who did."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NoReturn

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.types import JSON

ERASE_TIMEOUT = 3600.0  # seconds: the whole store is looked through

EXAMPLE = """example:
  stratacache invalidate --tag prices --tag kb:returns
  stratacache invalidate --tag model:smollm2-135m --dry-run
  stratacache invalidate --entry 0f6b1f0c2e8d4a7b9c3d5e6f708192a3
  stratacache invalidate --tenant acme
  stratacache invalidate --tenant acme --erase
  stratacache invalidate --log"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tag",
        action="append",
        metavar="TAG",
        help="every entry with this tag, of all tenants; may be repeated",
    )
    parser.add_argument(
        "--entry",
        action="append",
        metavar="ID",
        help="the entry with this id (x-strata-entry); may be repeated",
    )
    parser.add_argument("--tenant", help="every entry of this tenant")
    parser.add_argument(
        "--erase",
        action="store_true",
        help="with --tenant: remove all that is kept of it too: entries, questions, review items, ledger rows",
    )
    parser.add_argument("--all", action="store_true", help="every entry there is")
    parser.add_argument("--dry-run", action="store_true", help="only tell what would go")
    parser.add_argument("--log", action="store_true", help="show the last invalidations instead")
    parser.add_argument(
        "--limit", type=int, default=20, metavar="N", help="how many of them (default: %(default)s)"
    )
    add_gateway_arguments(parser)
    parser.set_defaults(refuse=parser.error)


def run(args: argparse.Namespace) -> int:
    selected = [name for name in ("tag", "entry", "tenant", "all") if getattr(args, name)]
    _check_usage(args.refuse, selected, log=args.log)
    if args.erase:
        return _erase(args, selected)
    if args.log:
        told = ask_gateway(args, "GET", f"/admin/audit?limit={args.limit}", member="records")
    else:
        body = {"tags": args.tag, "entries": args.entry, "tenant": args.tenant, "all": args.all}
        wanted = {name: value for name, value in body.items() if value}
        sent = msgspec.json.encode({**wanted, "dry_run": args.dry_run})
        told = ask_gateway(args, "POST", "/admin/invalidate", sent, member="affected")
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
    elif args.log:
        _print_log(told)
    else:
        print(_in_words(told))
    return 0


def _erase(args: argparse.Namespace, selected: list[str]) -> int:
    if selected != ["tenant"] or args.dry_run:
        args.refuse("--erase goes with --tenant and nothing else")
    body = msgspec.json.encode({"tenant": args.tenant})
    told = ask_gateway(args, "POST", "/admin/erase", body, member="elsewhere", timeout=ERASE_TIMEOUT)
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return 0
    counts = {"entries": told["entries"], "questions": told["questions"], **told["elsewhere"]}
    shown = ", ".join(f"{name} {count:,}" for name, count in counts.items() if count is not None)
    print(f"erased: {shown}")
    if told["entries"] is None:
        print(
            "this store cannot list its entries: they answer nobody any more, and are gone when their lives end"
        )
    return 0


def _check_usage(refuse: Callable[[str], NoReturn], selected: list[str], *, log: bool) -> None:
    if log and selected:
        refuse(f"--log shows what was done; it does not go with --{selected[0]}")
    if not log and not selected:
        refuse("name what to invalidate: --tag, --entry, --tenant or --all")


def _in_words(told: JSON) -> str:
    affected = told["affected"]
    entries = "entry" if affected == 1 else "entries"
    count = f"an unknown number of {entries}" if affected is None else f"at most {affected:,} {entries}"
    lines = [f"{'would invalidate' if told['dry_run'] else 'invalidated'} {count}"]
    lines += [f"  {tag:<40} version {version}" for tag, version in told["versions"].items()]
    if not told["audited"]:
        lines.append(
            "not in the audit log: it is off (audit.path), or could not be written (see the gateway's log)"
        )
    return "\n".join(lines)


def _print_log(told: JSON) -> None:
    from rich.console import Console
    from rich.table import Table

    if not told["enabled"]:
        print("the audit log is off; audit.path in the configuration switches it on")
        return
    table = Table("time (UTC)", "who", "what", "entries", "outcome")
    for record in told["records"]:
        affected = "-" if record["affected"] is None else f"{record['affected']:,}"
        outcome = f"{record['outcome']} (dry run)" if record["dry_run"] else record["outcome"]
        moment = record["time"][:19].replace("T", " ")
        table.add_row(moment, record["actor"], _selected(record["selection"]), affected, outcome)
    Console().print(table)


def _selected(selection: JSON) -> str:
    parts = []
    for name, value in selection.items():
        if name == "dry_run" or value is False:
            continue
        shown = ", ".join(value[:5]) + (", …" if len(value) > 5 else "") if isinstance(value, list) else value
        parts.append(name if value is True else f"{name}: {shown}")
    return "; ".join(parts)
