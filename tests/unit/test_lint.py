"""``stratacache lint``: rules, inputs, output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stratacache.cli import main
from stratacache.lab.lint_rules import CODES, RULES
from stratacache.policy.prompt.divergence import CAUSES

TEXT = "Answer in one sentence and cite the page. " * 120
USER = {"role": "user", "content": "What does page 3 say?"}
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


def chat(*messages: Any, system: str = TEXT, **more: Any) -> dict[str, Any]:
    return {
        "model": "gpt-5",
        "messages": [{"role": "system", "content": system}, *(messages or (USER,))],
        **more,
    }


def lint(path: Path, *values: Any, capsys: Any, args: tuple[str, ...] = ()) -> tuple[int, dict[str, Any]]:
    path.write_text("\n".join(json.dumps(one) for one in values), encoding="utf-8")
    code = main(["lint", str(path), "--json", *args])
    said = capsys.readouterr().out
    return code, json.loads(said) if said else {}


def codes(report: dict[str, Any]) -> list[str]:
    return [one["code"] for one in report["findings"]]


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_clean_log_is_clean(tmp_path: Path, capsys: Any) -> None:
    answer = {"role": "assistant", "content": "So."}
    code, report = lint(tmp_path / "log.jsonl", chat(USER), chat(USER, answer, USER), capsys=capsys)
    assert (code, report["findings"], report["prompts"]) == (0, [], 2)


def test_a_clock_costs_what_stands_behind_it(tmp_path: Path, capsys: Any) -> None:
    values = [chat(system=f"Current time: 2026-12-03T14:05:{n}Z\n{TEXT}") for n in (10, 11, 12)]
    code, report = lint(tmp_path / "log.jsonl", *values, capsys=capsys)
    (found,) = report["findings"]
    assert (code, found["code"], found["times"]) == (1, "P001", 2)
    assert found["lost"] > 2 * 1150
    assert found["usd"] > 0
    assert (found["first"]["line"], found["first"]["since"]) == (2, 1)
    assert found["first"]["excerpt"] == "2026-12-03T14:05:11Z"
    assert "relocate_volatile" in found["fix"]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Today is December 3, 2026.", "P001"),
        ("现在是2026年12月3日下午3点。", "P001"),
        ("Request ID: ab12-cd34", "P002"),
        ("用户：张三", "P012"),
    ],
)
def test_a_system_prompt_as_text(tmp_path: Path, capsys: Any, text: str, code: str) -> None:
    (tmp_path / "prompt.txt").write_text(f"You help.\n{text}\n", encoding="utf-8")
    assert main(["lint", "prompt.txt"]) == 1
    said = capsys.readouterr().out
    assert said.startswith(code)
    assert "fix " in said


def tools(*names: str, turned: bool = False) -> list[Any]:
    order = ["b", "a"] if turned else ["a", "b"]
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in order}, "required": order}
    return [{"name": n, "description": "Does it. " * 40, "input_schema": schema} for n in names]


def said(*blocks: Any, role: str = "assistant") -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
SO = {"type": "text", "text": "So."}
CALL = {"type": "tool_use", "id": "t", "name": "a", "input": {"x": 1, "y": 2}}
PAIRS = {
    "P003": ({"tools": tools("a", "b")}, {"tools": tools("b", "a")}),
    "P004": ({"tools": tools("a")}, {"tools": tools("a", turned=True)}),
    "P005": ({"messages": [USER, said(THOUGHT, SO)]}, {"messages": [USER, said(SO), USER]}),
    "P009": ({"messages": [USER, said(SO)]}, {"messages": [{**USER, "content": "Cut."}, said(SO), USER]}),
    "P010": (
        {"messages": [USER, said(CALL)]},
        {"messages": [USER, said({**CALL, "input": {"y": 2, "x": 1}}), USER]},
    ),
    "P013": ({"tools": tools("a")}, {"tools": tools("a", "c")}),
    "P014": ({"system": f"Likes: trains. {TEXT}"}, {"system": f"Likes: ships. {TEXT}"}),
}


@pytest.mark.parametrize("code", PAIRS)
def test_rules_that_two_prompts_of_a_conversation_break(tmp_path: Path, capsys: Any, code: str) -> None:
    base = {"model": "claude-sonnet-5", "system": TEXT, "messages": [USER]}
    values = [{"session_id": "s", "request": {**base, **one}} for one in PAIRS[code]]
    assert codes(lint(tmp_path / "log.jsonl", *values, capsys=capsys)[1]) == [code]


def marked(text: str, mark: Any = MARK) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": mark}


def results(count: int, **more: Any) -> list[Any]:
    return [{"type": "tool_result", "tool_use_id": f"t{n}", "content": "x", **more} for n in range(count)]


ALONE = {
    "P006": {"system": [marked("Be brief.")]},
    # three results of one call each carry the mark that the one message had
    "P007": {
        "system": [marked(TEXT), marked("b")],
        "messages": [USER, said(*results(3, cache_control=MARK), role="user")],
    },
    "P008": {
        "tools": [{**tools("a")[0], "description": TEXT, "cache_control": MARK}],
        "system": [marked(TEXT, HOUR)],
    },
    "P011": {"system": [marked(TEXT)], "messages": [USER, said(*results(11), role="user")]},
}


@pytest.mark.parametrize("code", ALONE)
def test_rules_that_one_prompt_breaks(tmp_path: Path, capsys: Any, code: str) -> None:
    body = {"model": "claude-sonnet-5", "messages": [USER], **ALONE[code]}
    status, report = lint(tmp_path / "one.json", body, capsys=capsys)
    assert (status, codes(report)) == (1, [code])


def test_every_rule_is_tested_and_every_cause_has_one() -> None:
    assert set(RULES) == {*PAIRS, *ALONE, "P001", "P002", "P012"}
    assert set(CODES) == set(CAUSES)
    assert set(CODES.values()) <= set(RULES)


def test_the_least_length_can_be_said(tmp_path: Path, capsys: Any) -> None:
    body = {"model": "m", "system": [marked(TEXT)], "messages": [USER]}
    assert codes(lint(tmp_path / "a.json", body, capsys=capsys, args=("--minimum", "4096"))[1]) == ["P006"]
    assert codes(lint(tmp_path / "a.json", body, capsys=capsys)[1]) == []


@pytest.mark.parametrize(
    "wrapped",
    [
        lambda body: body,
        lambda body: {"request": body},
        lambda body: {"at": 3, "body": json.dumps(body)},
        lambda body: {"payload": {"kwargs": body}},
    ],
)
def test_requests_are_found_in_records(tmp_path: Path, capsys: Any, wrapped: Any) -> None:
    body = chat(system="Today is December 3, 2026.")
    assert codes(lint(tmp_path / "log.jsonl", wrapped(body), capsys=capsys)[1]) == ["P001"]


def test_a_list_of_requests_and_a_list_of_messages(tmp_path: Path, capsys: Any) -> None:
    body = chat(system="Today is December 3, 2026.")
    assert lint(tmp_path / "a.json", [body, body], capsys=capsys)[1]["prompts"] == 2
    assert lint(tmp_path / "b.json", body["messages"], capsys=capsys)[1]["prompts"] == 1


def test_a_request_over_several_lines(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "one.json").write_text(json.dumps(chat(system="Today is May 3, 2026."), indent=2))
    assert main(["lint", "one.json"]) == 1


def test_bad_lines_are_passed_over_and_told(tmp_path: Path, capsys: Any) -> None:
    lines = [json.dumps(chat()), '{"messages": [', json.dumps({"note": 1}), "[1]", ""]
    (tmp_path / "log.jsonl").write_text("\n".join(lines))
    assert main(["lint", "log.jsonl"]) == 0
    told = capsys.readouterr().err
    assert all(f"line {n} is passed over" in told for n in (2, 3, 4))


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x00\x01\x02", "zero byte"),
        (b"\xff\xfe\xfd", "UTF-8"),
        (b"", "empty"),
        (b" \n ", "empty"),
        (b'{"a": ', "begins like JSON"),
        (b"[" * 100_000, "begins like JSON"),
        (b'{"a": 1}\n{"b": 2}', "no request"),
        (b'{"messages": ' + b"[" * 5000 + b"]" * 5000 + b"}", "deep"),
    ],
)
def test_hostile_input_is_one_clear_error(tmp_path: Path, capsys: Any, raw: bytes, why: str) -> None:
    (tmp_path / "x").write_bytes(raw)
    assert main(["lint", "x"]) == 2
    told = capsys.readouterr().err
    assert why in told
    assert told.count("\n") == 1


def test_a_file_that_is_not_there(capsys: Any) -> None:
    assert main(["lint", "nowhere.jsonl"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_nothing_in_a_log_reaches_the_terminal_as_a_command(tmp_path: Path, capsys: Any) -> None:
    values = [chat(system=f"\x1b]0;{word}\x07 {TEXT}") for word in ("one", "two")]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, values)))
    main(["lint", "log.jsonl"])
    assert "\x1b" not in capsys.readouterr().out


def test_what_the_gateway_could_mend_is_gone_when_it_is_stabilised(tmp_path: Path, capsys: Any) -> None:
    values = []
    for n, names in enumerate([("a", "b"), ("b", "a"), ("a", "b")]):
        turns = [one for i in range(n) for one in ({**USER, "content": f"{i}?"}, said(SO))]
        system = f"Now: 2026-12-03T14:05:1{n}Z\n用户：张三\n{TEXT}"
        values.append(
            {
                "model": "m",
                "system": system,
                "tools": tools(*names, turned=n == 1),
                "messages": [*turns, USER],
            }
        )
    assert codes(lint(tmp_path / "log.jsonl", *values, capsys=capsys)[1])
    code, report = lint(tmp_path / "log.jsonl", *values, capsys=capsys, args=("--stabilised",))
    assert (code, report["findings"]) == (0, [])
