"""The plan before the work: shown and asked for, edited, made alone, or left out."""

import json
import os
import pty
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workshop import ANSWERS, PLAN, Said, Workshop, ended, wait_until

KEYS = [said.key for said in ANSWERS]


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path)
    yield workshop
    workshop.assert_quiet()


def asked(workshop: Workshop) -> list[str]:
    return [call for (call,) in workshop.rows("SELECT call FROM calls ORDER BY rowid")]


def test_a_plan_alone(workshop: Workshop) -> None:
    done = workshop.fix("--plan-only")
    assert done.code == 0, done.text
    assert "split drops the remainder" in (workshop.out / "plan.md").read_text()
    assert workshop.document["exit_status"] == "answered"
    assert workshop.document["plan"]["steps"] == ["give the remainder to the first people"]
    assert asked(workshop) == ["plan"]
    assert workshop.branches == []


def test_an_edited_plan(workshop: Workshop) -> None:
    assert workshop.fix("--plan-only").code == 0
    plan = workshop.directory / "mine.md"
    plan.write_text((workshop.out / "plan.md").read_text().replace("the first people", "the first people, says Ada"))
    assert "says Ada" in plan.read_text()
    done = workshop.fix("--plan", str(plan))
    assert done.code == 0, done.text
    assert workshop.document["plan"]["steps"] == ["give the remainder to the first people, says Ada"]
    assert "says Ada" in (workshop.out / "pull-request.md").read_text()
    assert asked(workshop).count("plan") == 1, "the plan that was given is not asked for"
    assert workshop.document["verification"]["verdict"] == "proved"


def test_no_plan(workshop: Workshop) -> None:
    done = workshop.fix("--no-plan")
    assert done.code == 0, done.text
    assert workshop.document["plan"] is None
    assert asked(workshop) == KEYS[1:]
    assert len(workshop.branches) == 1


def test_approval_where_nobody_can_be_asked(workshop: Workshop) -> None:
    for _ in range(2):
        done = workshop.fix("--approve")
        assert done.code == 24, done.text
        assert f"Edit {workshop.out / 'plan.md'} and pass it with --plan" in done.text
        assert asked(workshop) == ["plan"], "waiting again costs nothing"
        assert "awaiting_approval" in workshop.jobs().text
    assert "split drops the remainder" in (workshop.out / "plan.md").read_text()
    assert workshop.document["exit_status"] == "awaiting_approval"
    assert workshop.branches == []


ASKING = PLAN | {"questions": ["Who gets the remainder?"]}
UNSURE = (Said("plan", json.dumps(ASKING)), *ANSWERS[1:])


def test_questions_are_shown_and_waited_for(workshop: Workshop) -> None:
    workshop.record(UNSURE)
    for _ in range(2):
        done = workshop.fix()
        assert done.code == 25, done.text
        assert done.text.count("(1) Who gets the remainder?") >= 1
        assert "Write the answers into the issue file" in done.text
        assert asked(workshop) == ["plan"], "waiting again costs nothing"
        assert "needs_input" in workshop.jobs().text
    assert workshop.document["exit_status"] == "needs_input"
    assert workshop.document["plan"]["questions"] == ["Who gets the remainder?"]
    assert "--no-plan" in workshop.document["hint"]
    assert workshop.branches == []


def test_questions_can_be_answered_in_the_plan(workshop: Workshop) -> None:
    workshop.record(UNSURE)
    assert workshop.fix().code == 25
    plan = workshop.directory / "mine.md"
    plan.write_text((workshop.out / "plan.md").read_text().replace("remainder?", "remainder? The first people."))
    done = workshop.fix("--plan", str(plan))
    assert done.code == 0, done.text
    assert workshop.document["plan"]["questions"] == ["Who gets the remainder? The first people."]
    assert len(workshop.branches) == 1


def test_questions_can_be_answered_in_the_issue(workshop: Workshop) -> None:
    workshop.record(UNSURE)
    assert workshop.fix().code == 25
    workshop.issue.write_text(workshop.issue.read_text() + "\nThe first people get the remainder.\n")
    workshop.record(ANSWERS)
    done = workshop.fix()
    assert done.code == 0, done.text
    assert workshop.document["verification"]["verdict"] == "proved"


class Terminal:
    """A person at a terminal: what they type, and the command that reads it."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop
        self._ours, theirs = pty.openpty()
        self.process = workshop.begin("--approve", stdin=theirs)
        os.close(theirs)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def answer(self, text: str) -> None:
        """Type an answer; the terminal keeps it until it is read."""
        os.write(self._ours, text.encode())


@pytest.mark.parametrize("answer", ["y\n", "maybe\nYES\n"])
def test_approved_at_a_terminal(workshop: Workshop, answer: str) -> None:
    with Terminal(workshop) as terminal:
        terminal.answer(answer)
        done = ended(terminal.process)
    assert done.code == 0, done.text
    assert len(workshop.branches) == 1


@pytest.mark.parametrize("answer", ["n\n", "\x04"], ids=["no", "end of input"])
def test_not_approved_it_is_asked_again(workshop: Workshop, answer: str) -> None:
    with Terminal(workshop) as terminal:
        terminal.answer(answer)
        done = ended(terminal.process)
    assert done.code == 24, done.text
    assert "The plan was not approved." in done.text
    with Terminal(workshop) as terminal:
        terminal.answer("y\n")
        again = ended(terminal.process)
    assert again.code == 0, again.text
    assert asked(workshop) == KEYS


def test_edited_at_the_terminal(workshop: Workshop) -> None:
    editor = workshop.directory / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/the first people/the first people, says Ada/' \"$1\"\n")
    editor.chmod(0o755)
    workshop.environment["EDITOR"] = str(editor)
    with Terminal(workshop) as terminal:
        terminal.answer("e\ny\n")
        done = ended(terminal.process)
    assert done.code == 0, done.text
    assert workshop.document["plan"]["steps"] == ["give the remainder to the first people, says Ada"]


def test_interrupted_while_asking(workshop: Workshop) -> None:
    with Terminal(workshop) as terminal:
        assert wait_until((workshop.out / "plan.md").is_file)
        terminal.process.send_signal(signal.SIGINT)
        done = ended(terminal.process)
    assert done.code == 3, done.text
