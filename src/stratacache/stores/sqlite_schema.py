"""The tables of the SQLite store's file."""

from __future__ import annotations

from stratacache.stores.sqlite_file import Layout

# Measured with 2.6 KB rows (file / payload, µs per insert): 4 KiB 1.53, 158; 8 KiB 1.31, 179; 16 KiB 1.17, 288;
# 64 KiB 1.09, 753. WITHOUT ROWID on the digest: 1.47, 890, as rows land on random pages and half of them spill.
PAGE_BYTES = 16_384

# versions.carried: entries of the present version, as ``sqlite_batch`` counts them. totals.latest: the highest version
# ever given out; totals.born tells this file from one that took its place. bumps: the latest invalidations. asked: the
# question log, which always keeps the latest, so that no number is used twice; asked.upto: bytes appended up to it.
_SCRIPT = """
CREATE TABLE entries (
    id INTEGER PRIMARY KEY, digest BLOB NOT NULL, expires INTEGER NOT NULL, used INTEGER NOT NULL,
    size INTEGER NOT NULL, value BLOB NOT NULL);
CREATE UNIQUE INDEX by_digest ON entries (digest);
CREATE INDEX by_expires ON entries (expires);
CREATE INDEX by_used ON entries (used);
CREATE TABLE versions (
    tag TEXT PRIMARY KEY, version INTEGER NOT NULL, carried INTEGER NOT NULL, expires INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX versions_by_expires ON versions (expires);
CREATE TABLE bumps (number INTEGER PRIMARY KEY, told BLOB);
CREATE TABLE asked (
    number INTEGER PRIMARY KEY, expires INTEGER NOT NULL, upto INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE totals (
    entries INTEGER NOT NULL, bytes INTEGER NOT NULL, tags INTEGER NOT NULL, latest INTEGER NOT NULL,
    born INTEGER NOT NULL);
INSERT INTO totals VALUES (0, 0, 0, 0, random());
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE totals SET entries = entries + 1, bytes = bytes + new.size; END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE totals SET entries = entries - 1, bytes = bytes - old.size; END;
CREATE TRIGGER resized AFTER UPDATE OF size ON entries BEGIN
    UPDATE totals SET bytes = bytes + new.size - old.size; END;
CREATE TRIGGER named AFTER INSERT ON versions BEGIN
    UPDATE totals SET tags = tags + 1; END;
CREATE TRIGGER forgotten AFTER DELETE ON versions BEGIN
    UPDATE totals SET tags = tags - 1; END;
"""

CACHE = Layout(
    application=0x53545241,  # "STRA"
    version=3,
    emptied=(1, 2),
    page_bytes=PAGE_BYTES,
    synchronous="NORMAL",
    script=_SCRIPT,
)
