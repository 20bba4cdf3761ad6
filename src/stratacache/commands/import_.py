"""Bring the entries of an export into a running gateway."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import msgspec

from stratacache.commands.client import add_gateway_arguments, ask_gateway
from stratacache.types import JSON

EXAMPLE = """example:
  stratacache import backup.jsonl                     into the store that it came from
  stratacache import backup.jsonl --new-versions      into another store, or one that lost its data
  stratacache import backup.jsonl --dry-run           only check the file

An entry comes with the versions of its tags. The store refuses those that it did not give, so what was invalidated
since the export stays gone. --new-versions is your word that nothing in the file was: entries get the versions that
their tags have when the import begins. The file is checked as a whole first; a damaged one changes nothing. Importing
again is harmless."""

_TOGETHER = 200
_BYTES = 4 << 20
_TAGS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, metavar="FILE", help="what 'stratacache export' wrote")
    parser.add_argument("--tenant", help="only entries of this tenant")
    parser.add_argument(
        "--new-versions",
        action="store_true",
        help="the entries are current, whatever invalidations another store has seen",
    )
    parser.add_argument("--dry-run", action="store_true", help="only check the file and count")
    add_gateway_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from stratacache.lab.datafile import adopted, batches, entries, survey

    content = survey(args.file)
    counts: Counter[str] = Counter(entries=content.entries, stored=0, outdated=0, declined=0, expired=0)
    if not args.dry_run:
        versions = _versions(args, sorted(content.tags)) if args.new_versions else None
        wanted = (one for one in entries(args.file) if args.tenant in (None, one.entry.tenant))
        taken = wanted if versions is None else (adopted(one, versions) for one in wanted)
        for batch in batches(taken, _TOGETHER, _BYTES):
            body = msgspec.json.encode({"lines": batch})
            told: dict[str, int] = ask_gateway(args, "POST", "/admin/import", body, member="stored")
            counts.update(told)
            if not args.json and sys.stderr.isatty():
                print(f"\r{counts['stored']:,} stored", end="\r", file=sys.stderr, flush=True)
    if args.json:
        print(msgspec.json.encode({**counts, "dry_run": args.dry_run}).decode())
    else:
        print(_in_words(counts, args))
    return 1 if counts["outdated"] and not counts["stored"] else 0


def _versions(args: argparse.Namespace, tags: list[str]) -> dict[str, int]:
    """The versions that ``tags`` have now: what is invalidated from now on is not brought in."""
    versions: dict[str, int] = {}
    for start in range(0, len(tags), _TAGS):
        body = msgspec.json.encode({"tags": tags[start : start + _TAGS]})
        told: JSON = ask_gateway(args, "POST", "/admin/versions", body, member="versions")
        versions |= told["versions"]
    return versions


def _in_words(counts: Counter[str], args: argparse.Namespace) -> str:
    if args.dry_run:
        return f"{args.file} is whole: {counts['entries']:,} entries"
    told = (
        f"{counts['stored']:,} stored, {counts['outdated']:,} outdated, {counts['expired']:,} expired, "
        f"{counts['declined']:,} declined by the store"
    )
    if counts["outdated"] and not args.new_versions:
        told += (
            "\noutdated: invalidated since the export, or the store never had them; if it is another store and "
            "nothing was invalidated, say --new-versions"
        )
    return told
