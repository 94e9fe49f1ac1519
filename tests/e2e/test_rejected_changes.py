"""What `agent-fix fix` leaves of work that became no branch: the rejected diff in a file, and a claim as a claim."""

import json

from app.agent.stop_rules import SUBMISSIONS
from tests.support.cli_job import PLAN, PROJECT, CliJob, ScriptedReplies, bash, submit
from tests.support.repositories import git

WRONG = "    return [share + 1] * people\n"
EDIT = ("edit", {"path": "money.py", "old_text": "    return [share] * people\n", "new_text": WRONG})


def answers(*turns: ScriptedReplies) -> tuple[ScriptedReplies, ...]:
    return ScriptedReplies("plan.1", json.dumps(PLAN)), *turns


def test_a_rejected_change_is_a_file_that_is_named(cli_job: CliJob) -> None:
    again = (ScriptedReplies(f"turn.{turn}", "Again.", [submit()]) for turn in range(2, SUBMISSIONS + 2))
    cli_job.record(answers(ScriptedReplies("turn.1", "Edit.", [EDIT]), *again))
    done = cli_job.fix()
    assert done.code == 21, done.text
    assert cli_job.document["exit_status"] == "verification_failed"
    assert cli_job.branches == []
    kept = cli_job.out / cli_job.document["patch"]
    assert f"no branch was made; {kept} can be applied with `git apply`" in " ".join(done.text.split())
    git(cli_job.repository, "apply", str(kept))
    assert (cli_job.repository / "money.py").read_text() == PROJECT["money.py"].replace(
        "    return [share] * people\n", WRONG
    )
    assert cli_job.jobs("show", cli_job.job, "--patch").text == kept.read_text()


def test_the_agents_statement_of_no_change_is_shown_as_a_claim(cli_job: CliJob) -> None:
    claim = "It is right as it is."
    said = [("submit", {"summary": claim, "reproduction": ""})]
    cli_job.record(
        answers(
            ScriptedReplies("turn.1", "Look.", [bash("ls")]),
            ScriptedReplies("turn.2", "", said),
            ScriptedReplies("turn.3", "", said),
        )
    )
    done = cli_job.fix()
    assert done.code == 23, done.text
    assert f"the agent says (unchecked): {claim}" in done.text
    assert cli_job.document["reason"] == "The agent says that nothing needs to be changed."
    assert cli_job.document["summary"] == claim
    assert cli_job.jobs("show", cli_job.job, "--patch").code == 23


def test_a_change_that_became_a_branch_is_kept_too(cli_job: CliJob) -> None:
    assert cli_job.fix().code == 0
    before = git(cli_job.repository, "rev-parse", f"{cli_job.branches[0]}^{{tree}}")
    git(cli_job.repository, "apply", "--index", str(cli_job.out / "change.patch"))
    assert git(cli_job.repository, "write-tree") == before
