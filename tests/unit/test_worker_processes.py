"""The pure parts of several workers: restart policy, ledger of counts, framing; and a parent with plain jobs."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.test_metrics import decision, samples

from stratacache.observe.figures import Figures
from stratacache.observe.metrics import Metrics
from stratacache.workers.ledger import Ledger
from stratacache.workers.messages import MAX_MESSAGE, Counts, Inbox, Tell, Totals, pack
from stratacache.workers.restarts import Restarts


def test_restarts_wait_longer_and_longer_until_they_are_given_up() -> None:
    policy = Restarts()
    assert [policy.ended(0.1) for _ in range(5)] == [0.0, 0.5, 1.0, 2.0, None]


def test_a_long_life_forgives_earlier_deaths() -> None:
    policy = Restarts(max_wait=1.5, hopeless=9)
    assert [policy.ended(lived) for lived in (0, 0, 10, 0, 0, 0)] == [0.0, 0.5, 0.0, 0.5, 1.0, 1.5]


@given(st.lists(st.integers(0, 300), max_size=8), st.lists(st.integers(1, 50), max_size=200))
def test_messages_are_whole_however_their_bytes_arrive(sizes: list[int], cuts: list[int]) -> None:
    sent = [Counts(Figures(counters={"saved": {"x" * size: 1}}), size) for size in sizes]
    stream = b"".join(pack(message) for message in sent)
    inbox = Inbox()
    got: list[bytes] = []
    for cut in cuts:
        got += inbox.feed(stream[:cut])
        stream = stream[cut:]
    got += inbox.feed(stream)
    decoder = msgspec.msgpack.Decoder(Counts | Tell | Totals)
    assert [decoder.decode(body) for body in got] == sent


def test_a_length_that_no_message_has_is_refused() -> None:
    with pytest.raises(ValueError, match=f"{MAX_MESSAGE + 1} bytes"):
        Inbox().feed((MAX_MESSAGE + 1).to_bytes(4, "big"))


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["count", "report", "end"])), max_size=60))
def test_totals_never_go_back_and_lose_at_most_what_was_not_reported(
    steps: list[tuple[int, str]],
) -> None:
    ledger = Ledger()
    alive: dict[int, Metrics] = {}
    reported = ended = 0
    shown: dict[object, float] = {}
    pids = {}
    for slot, step in steps:
        pid = pids.setdefault(slot, slot)
        metrics = alive.setdefault(pid, Metrics())
        if step == "count":
            metrics.decided(decision(f"m{slot}", stages=(("key", 0.001),)))
        elif step == "report":
            figures = msgspec.msgpack.decode(msgspec.msgpack.encode(metrics.figures()), type=Figures)
            ledger.update(pid, figures)
        else:
            last = {share.pid: share.requests for share in ledger.shares()}
            ended += last.get(pid, 0)
            ledger.retire(pid)
            pids[slot] = pid + 10  # the next process of this slot
        total = Metrics()
        total.add(ledger.total())
        reported = ended + sum(share.requests for share in ledger.shares())
        assert total.requests == reported
        now = samples(total)
        assert all(now[row] >= count for row, count in shown.items())
        shown = dict(now)


def supervised(folder: Path, body: str) -> subprocess.Popen[bytes]:
    """A parent in a process of its own; ``body`` defines ``jobs`` and ``options``."""
    script = f"""
import os, signal, sys, time
from stratacache.errors import SettingsError, StrataError
from stratacache.workers.member import Job
from stratacache.workers.restarts import Restarts
from stratacache.workers.supervisor import Supervisor

options = dict(drain=1.0, announce=lambda: print("ready", flush=True))

def forever(link):
    ended = []
    signal.signal(signal.SIGTERM, lambda *_: ended.append(1))
    link.ready()
    while not ended:
        time.sleep(0.01)
    return 0
{textwrap.dedent(body)}
try:
    sys.exit(Supervisor(jobs, **options).run())
except StrataError as error:
    print(type(error).__name__, error, flush=True)
    sys.exit(1)
"""
    return subprocess.Popen(
        [sys.executable, "-c", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def end(parent: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    out, errors = parent.communicate(timeout=30)
    return parent.returncode, out.decode(), errors.decode()


def line(parent: subprocess.Popen[bytes]) -> str:
    assert parent.stdout is not None
    return parent.stdout.readline().decode().strip()


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_parent_announces_once_and_drains_those_who_serve_others_last(tmp_path: Path) -> None:
    parent = supervised(
        tmp_path,
        """
        def note(link):
            code = forever(link)
            print("served until", [n for n in os.listdir() if n.startswith("done")], flush=True)
            return code

        def work(link):
            code = forever(link)
            time.sleep(0.1)
            open(f"done{os.getpid()}", "w").close()
            return code

        jobs = [Job("engines", note, counts=False, last=True), Job("one", work), Job("two", work)]
        """,
    )
    assert line(parent) == "ready"
    assert len(children(parent.pid)) == 3
    parent.send_signal(signal.SIGTERM)
    code, out, errors = end(parent)
    assert (code, errors) == (0, "")
    assert out.count("done") == 2


@pytest.mark.parametrize("kind", ["SettingsError", "StrataError"])
def test_a_start_that_fails_is_one_error_and_leaves_nobody(tmp_path: Path, kind: str) -> None:
    parent = supervised(
        tmp_path,
        f"""
        def work(link):
            raise {kind}("the store is broken")

        jobs = [Job("one", forever), Job("two", work), Job("three", work)]
        """,
    )
    assert end(parent) == (1, f"{kind} the store is broken\n", "")


def test_a_worker_that_ends_again_and_again_ends_all(tmp_path: Path) -> None:
    parent = supervised(
        tmp_path,
        """
        def work(link):
            link.ready()
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGSEGV)

        jobs = [Job("steady", forever), Job("shaky", work)]
        options["restarts"] = lambda: Restarts(first_wait=0.01)
        """,
    )
    code, out, errors = end(parent)
    assert code == 1
    assert out == "ready\nStrataError shaky was ended by SIGSEGV, and would again; what it said is above\n"
    assert errors.count("starting it again") == 4


def test_a_worker_that_ignores_the_stop_is_killed(tmp_path: Path) -> None:
    parent = supervised(
        tmp_path,
        """
        import stratacache.workers.supervisor as module
        module.STOP_MARGIN = 0.2

        def work(link):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            link.ready()
            time.sleep(60)

        jobs = [Job("deaf", work), Job("good", forever)]
        options["drain"] = 0.0
        """,
    )
    assert line(parent) == "ready"
    parent.send_signal(signal.SIGINT)
    code, _, errors = end(parent)
    assert code == 1
    assert "deaf" in errors
    assert "did not end in time" in errors


def test_a_worker_without_a_sign_of_life_is_killed_and_started_again(tmp_path: Path) -> None:
    parent = supervised(
        tmp_path,
        """
        def work(link):
            link.ready()
            print(os.getpid(), flush=True)
            time.sleep(60)

        jobs = [Job("silent", work)]
        options["hung"] = 0.2
        """,
    )
    said = {line(parent), line(parent), line(parent)}  # ready, and two processes
    assert len(said) == 3
    parent.kill()
    _, _, errors = end(parent)
    assert "gives no sign of life" in errors


def test_nobody_outlives_a_killed_parent(tmp_path: Path) -> None:
    parent = supervised(tmp_path, 'jobs = [Job("one", forever), Job("two", forever)]')
    assert line(parent) == "ready"
    descriptors = [os.pidfd_open(pid) for pid in children(parent.pid)]
    assert len(descriptors) == 2
    parent.kill()
    for descriptor in descriptors:
        assert select.select([descriptor], [], [], 30)[0]  # readable: it has ended
        os.close(descriptor)
    parent.communicate(timeout=30)
