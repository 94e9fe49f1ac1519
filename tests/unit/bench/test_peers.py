"""The comparison with other harnesses counts what was sent, and plays the same work to each in its own words."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from app.agent.actions import parse_calls, specs
from app.llm.base import ToolCall
from bench.comparison import aims, losses, render
from bench.counting import SUMMARY, CountedScript, CountingEndpoint, Record, tokens
from bench.dialect import SUBMIT, OfferedTools, call, shell
from bench.figures import Figures, figures
from bench.installs import NotInstalledError, interpreter
from bench.script import AuthorScript, Bash, Edit, Files, Finish, Move, Script, Search, View, authors, load, short

ROOT = PurePosixPath("/checkout")
FINISH = Finish("All done.", "pytest -q")
TEXT = "one\ntwo\nthree\ntwo\nfour\n"


def tool(name: str, *takes: str, required: tuple[str, ...] = ()) -> dict[str, Any]:
    schema = {"type": "object", "properties": {part: {"type": "string"} for part in takes}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


SHELL_ONLY = [tool("bash", "command", required=("command",))]
EDITOR = [
    tool("terminal", "command", "is_input", "timeout", required=("command", "security_risk")),
    tool("file_editor", "command", "path", "old_str", "new_str", "view_range", required=("command", "path", "summary")),
    tool("finish", "message", required=("message",)),
]
OURS = [{"type": "function", "function": {"name": s.name, "parameters": s.parameters}} for s in specs()]


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "a.txt").write_text(TEXT)
    return Files(tmp_path)


def said(act: Bash | View | Edit | Finish, tools: list[dict[str, Any]]) -> tuple[str, dict[str, Any]]:
    name, arguments = call(Move("Go on.", act), OfferedTools.of({"tools": tools}), ROOT)
    return name, json.loads(arguments)


def test_command_is_the_same_for_all_harnesses() -> None:
    for tools, name in ((OURS, "bash"), (SHELL_ONLY, "bash"), (EDITOR, "terminal")):
        called, arguments = said(Bash("ls | wc"), tools)
        assert (called, arguments["command"]) == (name, "ls | wc")


def test_view_uses_a_view_tool_or_a_command() -> None:
    act = View("a.txt", 3, 9)
    assert said(act, OURS) == ("view", {"path": "a.txt", "start": 3, "end": 9})
    assert said(act, SHELL_ONLY) == ("bash", {"command": "nl -ba a.txt | sed -n '3,9p'"})
    assert (
        said(act, EDITOR)[1] | {"command": "view", "path": "/checkout/a.txt", "view_range": [3, 9]}
        == said(act, EDITOR)[1]
    )
    assert said(View("a.txt"), SHELL_ONLY)[1] == {"command": "cat -n a.txt"}


def test_finish_uses_the_way_of_each_harness() -> None:
    assert said(FINISH, OURS) == ("submit", {"summary": "All done.", "reproduction": "pytest -q"})
    assert said(FINISH, SHELL_ONLY) == ("bash", {"command": SUBMIT})
    assert said(FINISH, EDITOR) == ("finish", {"message": "All done."})


def test_required_tool_arguments_are_filled_in() -> None:
    assert said(Bash("ls"), EDITOR)[1] == {"command": "ls", "security_risk": "LOW"}
    assert said(View("a.txt"), EDITOR)[1]["summary"] == "Go on."


def test_native_harness_accepts_every_scripted_call(files: Files) -> None:
    for act in (Bash("ls"), View("a.txt"), View("a.txt", 1, 2), files.edit("a.txt", 0, ["one"], ["1"]), FINISH):
        name, arguments = call(Move("", act), OfferedTools.of({"tools": OURS}), ROOT)
        (admitted,) = parse_calls([ToolCall(id="1", name=name, arguments=arguments)], 1)
        assert admitted.action is not None, admitted.problem


@pytest.mark.parametrize(
    ("at", "before", "after"),
    [(0, ["one"], ["1", "eins"]), (3, ["two"], ["zwei"]), (2, [], ["", "new"]), (2, ["three"], []), (5, [], ["end"])],
)
def test_an_edit_fits_once_and_does_the_same_in_a_shell(
    files: Files, at: int, before: list[str], after: list[str]
) -> None:
    edit = files.edit("a.txt", at, before, after)
    assert TEXT.count(edit.old) == 1
    changed = TEXT.replace(edit.old, edit.new)
    assert changed == "\n".join(files.lines("a.txt"))
    subprocess.run(("bash", "-c", shell(edit)), cwd=files.root, check=True)
    assert (files.root / "a.txt").read_text() == changed
    back = edit.reverse()
    assert changed.count(back.old) == 1
    assert changed.replace(back.old, back.new) == TEXT
    subprocess.run(("bash", "-c", shell(back)), cwd=files.root, check=True)
    assert (files.root / "a.txt").read_text() == TEXT


def test_long_script_reverts_its_edits_and_continues(files: Files) -> None:
    edits = [
        {"path": "a.txt", "at": "one", "replace": "one", "by": "1"},
        {"path": "a.txt", "after": "1", "insert": "x\n"},
    ]
    script = Script("Do it.", FINISH, [{"say": "Go on.", "edit": edit} for edit in edits])
    text = TEXT
    for move in script.moves(9, files)[:-1]:
        assert isinstance(move.act, Edit)
        assert text.count(move.act.old) == 1
        text = text.replace(move.act.old, move.act.new)
    assert text == TEXT
    assert script.moves(2, Files(files.root))[-1].act == FINISH


def test_an_edit_that_names_no_single_line_is_an_error(files: Files) -> None:
    with pytest.raises(ValueError, match="'two' in 2 lines instead of one"):
        files.find("a.txt", "two")


def test_recorded_script_has_99_steps_of_one_action() -> None:
    script = load()
    assert len(script.steps) == 99
    assert all(len(step.keys() & {"bash", "view", "edit"}) == 1 and step["say"] for step in script.steps)


def body(*contents: str, tools: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    messages = [{"role": "user", "content": content} for content in contents]
    return {"messages": messages, "tools": tools} if tools else {"messages": messages}


def play(*commands: str) -> CountedScript:
    times, used = iter(range(100)), iter(range(0, 500, 5))
    return CountedScript(
        [*(Move("Go on.", Bash(command)) for command in commands), Move("Done.", FINISH)],
        ROOT,
        lambda: next(times),
        lambda: next(used),
    )


def test_only_requests_with_tools_consume_a_step() -> None:
    played = play("one", "two")
    assert played.answer(body("Answer with one JSON object."), 10).text.startswith("{")
    assert played.answer(body("Sum this up."), 10).text == SUMMARY
    first = played.answer(body("a", tools=SHELL_ONLY), 10)
    second = played.answer(body("a", "b", tools=SHELL_ONLY), 10)
    assert [json.loads(turn.tools[0][2])["command"] for turn in (first, second)] == ["one", "two"]
    assert [record.step for record in played.records] == [None, None, 1, 2]
    assert not played.done
    assert json.loads(played.answer(body("a", "b", "c", tools=SHELL_ONLY), 10).tools[0][2])["command"] == SUBMIT
    assert played.done


AUTHOR = [tool(name) for name in ("view", "search", "specify")]


def test_author_leaves_out_looks_that_the_request_shows(files: Files) -> None:
    script = AuthorScript([[View("a.txt", 2, 3), Search("two")], [View("a.txt", 5, 5)]], {"test_a.py": "x = 1"}, ["t"])
    played = CountedScript([], ROOT, authors={"specification": script, "second tests": script}, files=files)
    calls = [played.answer_author(body("The issue.", *more, tools=AUTHOR), 1).tools for more in ((), ("four",))]
    assert [[name for _, name, _ in turn] for turn in calls] == [["view", "search"], ["specify"]]
    assert json.loads(calls[1][0][2]) == {"files": [{"path": "test_a.py", "content": "x = 1"}], "tests": ["t"]}
    with pytest.raises(IndexError, match="the author of the specification is at the end"):
        played.answer_author(body("The issue.", tools=AUTHOR), 1)
    played.answer_author(body("Test this change.", tools=AUTHOR), 1)
    assert [record.part for record in played.records] == ["specification", "specification", "second tests"]
    assert all(record.step is None and record.answer for record in played.records)


def test_authors_of_the_short_tasks_hand_in_what_they_name() -> None:
    for script in short():
        found = authors(script.name)
        assert set(found) == {"specification", "second tests"}
        for author in found.values():
            assert {test.partition("::")[0] for test in author.tests} == set(author.files)
            assert all(f"def {test.partition('::')[2]}(" in "".join(author.files.values()) for test in author.tests)


def test_endpoint_plays_authors_only_where_a_script_has_them(files: Files) -> None:
    with CountingEndpoint() as stage:
        alone = CountedScript([], ROOT)
        assert "chatcmpl" in post(stage.begin("ours/1", alone), body("The issue.", tools=AUTHOR))
        script = AuthorScript([], {"test_a.py": ""}, ["t"])
        played = CountedScript([], ROOT, authors={"specification": script}, files=files)
        assert "test_a.py" in post(stage.begin("ours/2", played), body("The issue.", tools=AUTHOR))
    assert (alone.records, len(played.records)) == ([], 1)


def test_repeated_request_gets_the_same_answer() -> None:
    played = play("one", "two")
    asked = body("a", tools=SHELL_ONLY)
    assert played.answer(asked, 10) == played.answer(dict(asked), 10)
    assert len(played.records) == 1


def test_after_the_last_answer_the_script_is_empty() -> None:
    played = play()
    for number in range(3):
        played.answer(body("x" * number, tools=SHELL_ONLY), 1)
    with pytest.raises(IndexError):
        played.answer(body("more", tools=SHELL_ONLY), 1)


def test_cacheable_tokens_are_counted() -> None:
    played = play("one", "two", "three")
    long = "some words of a long text " * 100
    played.answer(body(long, tools=SHELL_ONLY), 1)
    played.answer(body(long, "new words", tools=SHELL_ONLY), 1)
    played.answer(body("other", tools=SHELL_ONLY), 1)
    first, second, third = played.records
    assert (first.cached, first.gap) == (0, None)
    assert second.cached == second.kept == second.before == first.tokens
    assert second.tokens - first.tokens == tokens("user\nnew words")
    assert 0 < third.kept < tokens(json.dumps(SHELL_ONLY)) + 5 < third.before
    assert (second.gap, second.cpu) == (1, 5)


def test_streamed_and_whole_answers_agree_and_count_cached_tokens() -> None:
    with CountingEndpoint() as stage:
        url = stage.begin("ours/20", play("one", "two"))
        whole = json.loads(post(url, body("a", tools=SHELL_ONLY)))
        events = [line for line in post(url, body("a", "b", tools=SHELL_ONLY) | {"stream": True}).splitlines() if line]
    assert json.loads(whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {"command": "one"}
    last = json.loads(events[-2].removeprefix("data: "))
    assert events[-1] == "data: [DONE]"
    assert last["usage"]["prompt_tokens_details"]["cached_tokens"] == whole["usage"]["prompt_tokens"]


def test_problems_are_recorded() -> None:
    with CountingEndpoint() as stage:
        played = play("one")
        url = stage.begin("mini/20", played)
        with pytest.raises(HTTPError, match="400"):
            post(url, body("a", tools=[tool("paint", "colour")]))
        with pytest.raises(HTTPError, match="404"):
            post(url.replace("mini", "nobody"), body("a"))
    assert played.problems == ["none of paint takes a command"]


def post(url: str, content: Mapping[str, Any]) -> str:
    request = Request(f"{url}/chat/completions", json.dumps(content).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=10) as answer:
        return str(answer.read().decode())


def record(step: int | None, size: int, cached: int, kept: int, before: int, *, gap: float | None = 0.1) -> Record:
    cpu = (gap or 0.0) / 10
    return Record(step, size * 5, size * 4, size, cached=cached, kept=kept, before=before, gap=gap, cpu=cpu)


def test_figures_add_up() -> None:
    records = [
        record(None, 50, 0, 0, 0, gap=None),
        record(1, 100, 0, 0, 0),
        record(2, 200, 100, 100, 100, gap=0.2),
        record(3, 120, 40, 40, 200, gap=0.4),
    ]
    found = figures("agent-fix", "1", records, task=30, peak=250.0)
    assert (found.requests, found.steps, found.total, found.uncached) == (4, 3, 470, 330)
    assert found.cost == pytest.approx(330 + 14)
    assert found.cacheable == pytest.approx(140 / 470)
    assert (found.head, found.breaks) == (70, 1)
    assert found.kept == pytest.approx(140 / 300)
    assert [found.ms, found.first_ms, found.last_ms] == pytest.approx([300, 200, 400])
    assert [found.cpu_ms, found.first_cpu_ms, found.last_cpu_ms] == pytest.approx([30, 20, 40])
    assert found.prompts == (100, 200, 120)
    assert found.as_json()["cost"] == found.cost
    assert found.work == found.cost


def test_figures_of_parts_add_up() -> None:
    records = [
        replace(record(None, 50, 0, 0, 0, gap=None), part="specification", answer=7),
        record(1, 100, 0, 0, 0),
        record(2, 200, 100, 100, 100),
    ]
    found = figures("agent-fix", "1", records, task=30, peak=250.0)
    assert [(part.part, part.requests, part.total, part.answers) for part in found.parts] == [
        ("specification", 1, 50, 7),
        ("work", 2, 300, 0),
    ]
    assert found.work == pytest.approx(200 + 10)
    assert "| clauses | specification | 1 " in render([found], {}, 4.0)


def row(harness: str, total: int, uncached: int, *, steps: int = 40, kept: float = 1.0, ms: float = 10.0) -> Figures:
    records = [record(number, total // steps, 0, 0, 0) for number in range(steps)]
    made = figures(harness, "1", records, task=0, peak=1.0)
    return Figures(**{**slots(made), "total": total, "uncached": uncached, "kept": kept, "ms": ms})


def slots(made: Figures) -> dict[str, Any]:
    return {name: getattr(made, name) for name in Figures.__slots__}


def test_targets_are_compared_with_mini_swe_agent_at_the_same_steps() -> None:
    rows = [
        row("agent-fix", 400, 100, kept=0.95),
        row("mini-swe-agent", 1_000, 100),
        row("mini-swe-agent", 1, 1, steps=100),
    ]
    assert aims(rows) == [
        "total tokens at 40 steps: 0.40 of mini-swe-agent's, aim 0.5: met",
        "cost at 40 steps: 0.68 of mini-swe-agent's, aim 0.6: MISSED",
        "prefix kept at 40 steps: 95.00%, all but 0 times, aim 0.99: MISSED",
    ]


def test_report_names_losses_and_unmeasured_harnesses() -> None:
    rows = [row("agent-fix", 400, 100, ms=30), row("mini-swe-agent", 1_000, 90)]
    (lost,) = losses(rows)
    assert "40 steps, we lose to mini-swe-agent: uncached tokens 100 to 90" in lost
    assert "milliseconds a step 30 to 10" in lost
    assert "total tokens" not in lost
    shown = render(rows, {"OpenHands SDK": "needs Python 3.12 or newer"}, 4.0)
    assert "OpenHands SDK: not measured. needs Python 3.12 or newer" in shown
    assert len({len(line) for line in shown.split("\n\n")[0].splitlines()}) == 1


def test_missing_python_version_is_reported() -> None:
    assert interpreter((3, 11))
    with pytest.raises(NotInstalledError, match=r"needs Python 9\.1 or newer"):
        interpreter((9, 1))
