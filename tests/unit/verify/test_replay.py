"""What the programs that call tests without a framework report; the tested code can write such lines, too."""

import pytest

from app.core.verification import TestSelection
from app.verify.frameworks import FrameworkName, SuiteCommand
from app.verify.launcher.base import UNKNOWN_FORM, StepEnd, SupervisorAnswer
from app.verify.replay import Replayed, head_only_failures, read_replay, replay_tests
from tests.support.no_sandboxes import unopened

TOKEN = "token:"
HOSTILE = ["5", "None", "'end'", "[1", "{1: 2}", "b'x'", "['result', 1, 2, 3, 4]", "['odd', 'a', 'b', [[1]]]"]
HOSTILE += ["['odd', 'a', 'b', [1]]", "['odd', 'a', 'b', [['m', 'f', 'x']]]", "[" * 5_000, "[[['end']]]"]


def reported(*lines: str) -> SupervisorAnswer:
    return SupervisorAnswer(steps=(StepEnd(exit_code=0, output="\n".join(TOKEN + line for line in lines).encode()),))


@pytest.mark.parametrize("line", HOSTILE)
def test_line_of_a_form_that_we_do_not_send_is_a_problem(line: str) -> None:
    report = read_replay(reported("['result', 'a', 'plain', '', '']", line, "['end']"), TOKEN)
    assert report.problem == UNKNOWN_FORM
    assert report.outcomes == {"plain": {"a": ("", "")}}
    assert not report.unfinished


@pytest.mark.parametrize("shown", ["[[1]]", "['b']", "5", "{'a': [1]}", "{1, 2}", "nothing", ""])
def test_change_of_the_process_is_excused_only_by_the_same_entry_on_the_base(shown: str) -> None:
    """Of the process and of calls in other forms, lists or objects are compared entry by entry."""
    head, base = (
        Replayed(("a",), read_replay(reported(f"['result', 'a', 'process', 'changed', {text!r}]", "['end']"), TOKEN))
        for text in (shown, "{}")
    )
    assert head_only_failures(head, base, {}) == [("process", "a")]
    known = shown in {"[[1]]", "['b']", "{'a': [1]}"}
    assert head_only_failures(head, head, {}) == ([] if known else [("process", "a")])


@pytest.mark.parametrize(("framework", "directory"), [("mocha", ""), ("jest", "web")])
async def test_why_tests_of_javascript_are_not_called_is_said(framework: FrameworkName, directory: str) -> None:
    suite = SuiteCommand(f"npx {framework}", framework, f"npx {framework}", directory)
    found = await replay_tests(suite, TestSelection(ids=("a.test.js::a",)), unopened(), None, name="replay")
    assert (directory or framework) in found.why_not
    assert "cannot" not in found.why_not
