"""A model that is the attacker: whatever it writes as tool calls, nothing crashes, grows, or leaves the sandbox."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.actions import MAX_CALLS, BashAction, parse_calls
from app.llm.base import ModelAnswer, ToolCall
from tests.support.agent_harness import FIX, SUBMIT, AgentHarness, act
from tests.unit.agent.test_history import check_protocol

DEEP = "[" * 10_000 + "]" * 10_000
LONG = "x" * 30_000

# name of the attack: (tool, arguments, what the model is told)
CALLS: dict[str, tuple[str, str, str]] = {
    "unknown tool": ("shell", "{}", "There is no tool 'shell'"),
    "nearly a tool": ("bassh", "{}", "Did you mean bash?"),
    "a name of 30,000 characters": (LONG, '{"command": "id"}', "(30,000 characters)"),
    "a long name that hides an argument": (f"bash{LONG}", '{"command": "touch hidden"}', "There is no tool"),
    "a name with control characters": ("ba\nsh\x1b[2J", "{}", "There is no tool"),
    "an empty name": ("", "{}", "There is no tool ''"),
    "a name of another alphabet": ("b\u0430sh", '{"command": "id"}', "There is no tool"),
    "no arguments": ("bash", "", "command: is missing"),
    "null": ("bash", "null", "could not be read"),
    "a list": ("bash", '["id"]', "a JSON list instead of an object"),
    "a number": ("bash", "7", "a JSON int instead of an object"),
    "not JSON": ("bash", "command=id", "could not be read"),
    "JSON 10,000 deep": ("bash", f'{{"command": {DEEP}}}', "nested too deep"),
    "NaN": ("bash", '{"command": "id", "timeout": NaN}', "NaN is not JSON"),
    "infinity": ("bash", '{"command": "id", "timeout": -Infinity}', "is not JSON"),
    "a number that overflows": ("bash", '{"command": "id", "timeout": 1e999}', "timeout:"),
    "a number of 5,000 digits": ("bash", '{"command": "id", "timeout": ' + "9" * 5_000 + "}", "could not be read"),
    "a negative timeout": ("bash", '{"command": "id", "timeout": -1}', "timeout:"),
    "a timeout of a day": ("bash", '{"command": "id", "timeout": 86400}', "timeout: Input should be less"),
    "a boolean for a text": ("bash", '{"command": true}', "command: Input should be a valid string"),
    "a text for a number": ("view", '{"path": "app.py", "start": "first"}', "start:"),
    "an object for a text": ("bash", '{"command": {"cmd": "id"}}', "command:"),
    "an unknown argument": ("bash", '{"command": "id", "sudo": true}', "(ignored, bash has no such argument: sudo)"),
    "NUL in a command": ("bash", '{"command": "id\\u0000 rm"}', "NUL"),
    "NUL in a path": ("view", '{"path": "app.py\\u0000.txt"}', "NUL"),
    "a lone surrogate": ("bash", '{"command": "echo \\ud800"}', "command: must be valid Unicode"),
    "a blank command": ("bash", '{"command": "  "}', "must not be empty"),
    "a command of 40,000 characters": ("bash", json.dumps({"command": "#" * 40_000}), "at most 30000"),
    "a file of 600,000 characters": ("write", json.dumps({"path": "a", "content": "x" * 600_000}), "at most 500000"),
    "two megabytes of arguments": ("bash", json.dumps({"command": "x" * 2_000_000}), "more than the 1,000,000"),
    "a path of 5,000 characters": ("view", json.dumps({"path": "a/" * 2_500}), "at most 4000"),
    "a view of line zero": ("view", '{"path": "app.py", "start": 0}', "start:"),
    "an old text of nothing": ("edit", '{"path": "app.py", "old_text": "", "new_text": "x"}', "old_text is empty"),
    "a directory as file": ("write", '{"path": ".", "content": "x"}', "is a directory"),
    "a query of nothing": ("search", '{"query": ""}', "must not be empty"),
    "a query of 2,000 characters": ("search", json.dumps({"query": "q" * 2_000}), "at most 1000"),
    "a query that looks like an option": ("search", '{"query": "--include=*"}', "Nothing matches"),
    "a regular expression that explodes": ("search", '{"query": "(a+)+$(b|c|d)+x"}', "Nothing matches"),
    "a path that looks like an option": ("view", '{"path": "--help"}', "There is no file --help"),
    "a path of shell": ("view", '{"path": "$(touch hidden)"}', "There is no file $(touch hidden)"),
    "a path with quotes": ("view", '{"path": "a\'; touch hidden; \'"}', "There is no file"),
    "a path with line breaks": ("write", '{"path": "a\\nb/../../../../../../proc/x", "content": "y"}', ""),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_hostile_call_is_answered_and_work_goes_on(name: str, tmp_path: Path) -> None:
    tool, arguments, told = CALLS[name]
    harness = AgentHarness(tmp_path, [act((tool, arguments)), FIX, SUBMIT])
    ending = await harness.work()
    assert ending.exit_status == "submitted"
    assert told in harness.seen(1)
    assert len(harness.seen(1)) < 2_000
    assert not (harness.sandbox.workspace / "hidden").exists()
    for request in harness.model.requests:
        check_protocol(request)
        assert len(request.model_dump_json()) < 40_000
        for call in (call for message in request.messages for call in message.tool_calls):
            assert len(call.name) <= 64
            assert call.name.isascii()
            assert isinstance(json.loads(call.arguments), dict)


async def test_two_hundred_calls_in_a_turn_are_capped(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [act(*[("bash", {"command": f"touch f{n}"}) for n in range(200)]), FIX, SUBMIT])
    assert (await harness.work()).exit_status == "submitted"
    assert len(list(harness.sandbox.workspace.glob("f*"))) == MAX_CALLS
    assert "184 more calls of this turn were not executed" in harness.notes(1)
    check_protocol(harness.model.requests[-1])


@pytest.mark.parametrize("ids", [["same"] * 5, [""] * 5, ["a b", "a\nb", "x" * 200, "ü", "ok"]])
async def test_ids_are_made_distinct(ids: list[str], tmp_path: Path) -> None:
    calls = tuple(ToolCall(id=i, name="bash", arguments='{"command": "true"}') for i in ids)
    harness = AgentHarness(tmp_path, [ModelAnswer(tool_calls=calls, finish_reason="tool_calls"), FIX, SUBMIT])
    assert (await harness.work()).exit_status == "submitted"
    assert len({call.id for call in harness.steps[0].turn.calls}) == 5
    check_protocol(harness.model.requests[-1])


@pytest.mark.parametrize(
    "arguments",
    [
        '{"command": "id"} and more',
        '```json\n{"command": "id"}\n```',
        '```\n{"command": "id"}```',
        'I run: {"command": "id"}',
        'I run:\n```json\n{"command": "id"}\n```\nDone {so}.',
        json.dumps('{"command": "id"}'),
        '{"command": "id", "timeout": null}',
        '  {"command": "id"}\n',
        '{"command": "id"}{"command": "rm -rf /"}',
        '{"command": "id", "timeout": "120"}',
    ],
)
def test_almost_valid_json_is_repaired_once(arguments: str) -> None:
    (admitted,) = parse_calls([ToolCall(id="a", name="bash", arguments=arguments)], 1)
    assert admitted.action == BashAction(command="id")
    assert json.loads(admitted.call.arguments)["command"] == "id"


def test_line_breaks_inside_strings_are_let_pass() -> None:
    (admitted,) = parse_calls([ToolCall(id="a", name="bash", arguments='{"command": "a\nb"}')], 1)
    assert admitted.action == BashAction(command="a\nb")
    assert json.loads(admitted.call.arguments) == {"command": "a\nb"}


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["bash", "view", "edit", "write", "search", "submit"]) | st.text(max_size=8)
KEYS = st.sampled_from(["command", "path", "start", "timeout", "content", "query", "summary"]) | st.text(max_size=4)


@given(
    st.lists(
        st.builds(
            ToolCall,
            id=st.text(max_size=4),
            name=NAMES,
            arguments=st.text(max_size=40) | st.dictionaries(KEYS, JSON, max_size=4).map(json.dumps),
        ),
        max_size=20,
    )
)
def test_any_calls_are_admitted_or_refused_with_a_reason(calls: list[ToolCall]) -> None:
    admitted = parse_calls(calls, 3)
    assert len(admitted) == min(len(calls), MAX_CALLS)
    assert len({item.call.id for item in admitted}) == len(admitted)
    for item in admitted:
        assert (item.action is None) == bool(item.problem)
        assert isinstance(json.loads(item.call.arguments), dict)


async def test_content_that_is_not_unicode_does_not_stop_the_job(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [act(("bash", {"command": "true"}), content="x\ud800y"), FIX, SUBMIT])
    assert (await harness.work()).exit_status == "submitted"
    harness.model.requests[-1].model_dump_json()


async def test_a_planted_output_link_writes_nowhere_else(tmp_path: Path) -> None:
    """The sandbox's /tmp is the agent's: a link planted where an output will be kept stays inside the sandbox."""
    plant = act(("bash", {"command": "mkdir -p $TMPDIR/output; ln -s $PWD/README $TMPDIR/output/2-1.txt"}))
    harness = AgentHarness(tmp_path, [plant, act(("bash", {"command": "seq 1 9000"})), FIX, SUBMIT])
    assert (await harness.work()).exit_status == "submitted"
