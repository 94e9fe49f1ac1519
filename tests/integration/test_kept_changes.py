"""What `agent-fix fix` leaves of work that became no branch: the rejected diff in a file, and a claim as a claim."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.agent.conduct import SUBMISSIONS
from tests.repositories import git
from tests.workshop import PLAN, PROJECT, Said, Workshop, bash, submit

WRONG = "    return [share + 1] * people\n"
EDIT = ("edit", {"path": "money.py", "old_text": "    return [share] * people\n", "new_text": WRONG})


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path)
    yield workshop
    workshop.assert_quiet()


def answers(*turns: Said) -> tuple[Said, ...]:
    return Said("plan", json.dumps(PLAN)), *turns


def test_a_rejected_change_is_a_file_that_is_named(workshop: Workshop) -> None:
    again = (Said(f"turn.{turn}", "Again.", [submit()]) for turn in range(2, SUBMISSIONS + 2))
    workshop.record(answers(Said("turn.1", "Edit.", [EDIT]), *again))
    done = workshop.fix()
    assert done.code == 21, done.text
    assert workshop.document["exit_status"] == "verification_failed"
    assert workshop.branches == []
    kept = workshop.out / workshop.document["patch"]
    assert f"no branch was made; the change is kept in {kept}" in done.text
    git(workshop.repository, "apply", str(kept))
    assert (workshop.repository / "money.py").read_text() == PROJECT["money.py"].replace(
        "    return [share] * people\n", WRONG
    )
    assert workshop.jobs("show", workshop.job, "--patch").text == kept.read_text()


def test_what_the_agent_says_of_no_change_is_a_claim(workshop: Workshop) -> None:
    claim = "It is right as it is."
    said = [("submit", {"summary": claim, "reproduction": ""})]
    workshop.record(answers(Said("turn.1", "Look.", [bash("ls")]), Said("turn.2", "", said), Said("turn.3", "", said)))
    done = workshop.fix()
    assert done.code == 23, done.text
    assert f"the agent says, and nobody has checked it: {claim}" in done.text
    assert workshop.document["reason"] == "Nothing was changed: the agent says that nothing has to be."
    assert workshop.document["summary"] == claim
    assert workshop.jobs("show", workshop.job, "--patch").code == 23


def test_a_change_that_became_a_branch_is_kept_too(workshop: Workshop) -> None:
    assert workshop.fix().code == 0
    before = git(workshop.repository, "rev-parse", f"{workshop.branches[0]}^{{tree}}")
    git(workshop.repository, "apply", "--index", str(workshop.out / "change.patch"))
    assert git(workshop.repository, "write-tree") == before
