"""The plan before the work: shown and asked for, edited, made alone, or left out."""

import json
import os
import pty
import signal

from tests.support.cli_job import ANSWERS, PLAN, CliJob, ScriptedReplies, ended, wait_until

KEYS = [said.key for said in ANSWERS]


def asked(cli_job: CliJob) -> list[str]:
    return [call for (call,) in cli_job.rows("SELECT call FROM calls ORDER BY rowid")]


def test_a_plan_alone(cli_job: CliJob) -> None:
    done = cli_job.fix("--plan-only")
    assert done.code == 0, done.text
    assert "split drops the remainder" in (cli_job.out / "plan.md").read_text()
    assert cli_job.document["exit_status"] == "answered"
    assert cli_job.document["plan"]["steps"] == ["give the remainder to the first people"]
    assert asked(cli_job) == ["plan.1"]
    assert cli_job.branches == []


def test_an_edited_plan(cli_job: CliJob) -> None:
    assert cli_job.fix("--plan-only").code == 0
    plan = cli_job.directory / "mine.md"
    plan.write_text((cli_job.out / "plan.md").read_text().replace("the first people", "the first people, says Ada"))
    assert "says Ada" in plan.read_text()
    done = cli_job.fix("--plan", str(plan))
    assert done.code == 0, done.text
    assert cli_job.document["plan"]["steps"] == ["give the remainder to the first people, says Ada"]
    assert "says Ada" in (cli_job.out / "pull-request.md").read_text()
    assert asked(cli_job).count("plan.1") == 1, "the plan that was given is not asked for"
    assert cli_job.document["verification"]["verdict"] == "proved"


def test_no_plan(cli_job: CliJob) -> None:
    done = cli_job.fix("--no-plan")
    assert done.code == 0, done.text
    assert cli_job.document["plan"] is None
    assert asked(cli_job) == KEYS[1:]
    assert len(cli_job.branches) == 1


def test_approval_where_nobody_can_be_asked(cli_job: CliJob) -> None:
    for _ in range(2):
        done = cli_job.fix("--approve")
        assert done.code == 24, done.text
        assert f"Edit {cli_job.out / 'plan.md'} and pass it with --plan" in done.text
        assert sorted(asked(cli_job)) == sorted(KEYS[:1]), "waiting again costs nothing"
        assert "waiting for approval" in cli_job.jobs().text
    assert "split drops the remainder" in (cli_job.out / "plan.md").read_text()
    assert cli_job.document["exit_status"] == "awaiting_approval"
    assert cli_job.branches == []


ASKING = PLAN | {"questions": ["Who gets the remainder?"]}
UNSURE = (ScriptedReplies("plan.1", json.dumps(ASKING)), *ANSWERS[1:])


def test_questions_are_shown_and_waited_for(cli_job: CliJob) -> None:
    cli_job.record(UNSURE)
    for _ in range(2):
        done = cli_job.fix()
        assert done.code == 25, done.text
        assert done.text.count("(1) Who gets the remainder?") >= 1
        assert "Write the answers into the issue file" in done.text
        assert sorted(asked(cli_job)) == sorted(KEYS[:1]), "waiting again costs nothing"
        assert "has a question" in cli_job.jobs().text
    assert cli_job.document["exit_status"] == "needs_input"
    assert cli_job.document["plan"]["questions"] == ["Who gets the remainder?"]
    assert "--no-plan" in cli_job.document["hint"]
    assert cli_job.branches == []


def test_questions_can_be_answered_in_the_plan(cli_job: CliJob) -> None:
    cli_job.record(UNSURE)
    assert cli_job.fix().code == 25
    plan = cli_job.directory / "mine.md"
    plan.write_text((cli_job.out / "plan.md").read_text().replace("remainder?", "remainder? The first people."))
    done = cli_job.fix("--plan", str(plan))
    assert done.code == 0, done.text
    assert cli_job.document["plan"]["questions"] == ["Who gets the remainder? The first people."]
    assert len(cli_job.branches) == 1


def test_questions_can_be_answered_in_the_issue(cli_job: CliJob) -> None:
    cli_job.record(UNSURE)
    assert cli_job.fix().code == 25
    cli_job.issue.write_text(cli_job.issue.read_text() + "\nThe first people get the remainder.\n")
    cli_job.record(ANSWERS)
    done = cli_job.fix()
    assert done.code == 0, done.text
    assert cli_job.document["verification"]["verdict"] == "proved"


class Terminal:
    """A person at a terminal: what they type, and the command that reads it."""

    def __init__(self, cli_job: CliJob) -> None:
        self._cli_job = cli_job
        self._ours, theirs = pty.openpty()
        self.process = cli_job.begin("--approve", stdin=theirs)
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


def test_not_approved_at_a_terminal_it_is_asked_again(cli_job: CliJob) -> None:
    for answer in ("n\n", "\x04"):  # no, and the end of the input
        with Terminal(cli_job) as terminal:
            terminal.answer(answer)
            done = ended(terminal.process)
        assert done.code == 24, done.text
        assert "The plan was not approved." in done.text
    with Terminal(cli_job) as terminal:
        terminal.answer("maybe\nYES\n")
        again = ended(terminal.process)
    assert again.code == 0, again.text
    assert len(cli_job.branches) == 1
    assert sorted(asked(cli_job)) == sorted(KEYS)  # the tests' author works beside the planner


def test_edited_at_the_terminal(cli_job: CliJob) -> None:
    editor = cli_job.directory / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/the first people/the first people, says Ada/' \"$1\"\n")
    editor.chmod(0o755)
    cli_job.environment["EDITOR"] = str(editor)
    with Terminal(cli_job) as terminal:
        terminal.answer("e\ny\n")
        done = ended(terminal.process)
    assert done.code == 0, done.text
    assert cli_job.document["plan"]["steps"] == ["give the remainder to the first people, says Ada"]


def test_an_editor_that_cannot_be_started_changes_nothing(cli_job: CliJob) -> None:
    for editor in ("no-such-editor --wait", "'unbalanced"):
        cli_job.environment["EDITOR"] = editor
        with Terminal(cli_job) as terminal:
            terminal.answer("e\nn\n")
            done = ended(terminal.process)
        assert done.code == 24, done.text
        assert f"Editing with {editor!r} failed" in done.text


def test_interrupted_while_asking(cli_job: CliJob) -> None:
    with Terminal(cli_job) as terminal:
        assert wait_until((cli_job.out / "plan.md").is_file)
        terminal.process.send_signal(signal.SIGINT)
        done = ended(terminal.process)
    assert done.code == 3, done.text
