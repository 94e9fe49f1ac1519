"""`agent-fix reproduce`: an issue shown as a program, or what is missing; and a fix that goes on from there."""

import json

from tests.support.cli_job import PLAN, CliJob, ScriptedReplies
from tests.support.written_examples import example

IMPORTS = "from money import split"


def planned(*examples: object, **plan: object) -> ScriptedReplies:
    return ScriptedReplies("plan.1", "", [("plan", {"examples": examples, **PLAN, **plan})])


def asked(cli_job: CliJob) -> list[str]:
    return [call for (call,) in cli_job.rows("SELECT call FROM calls ORDER BY rowid")]


def test_an_issue_is_shown_and_then_fixed_from_the_same_examples(cli_job: CliJob) -> None:
    done = cli_job.reproduce()
    assert done.code == 0, done.text
    shown = done.text.partition("reproduced\n")[2]
    for text in ("print(split(100, 3))", "prints today", "[33, 33, 33]", "should print", "[34, 33, 33]", "one cent is"):
        assert text in shown, done.text
    assert cli_job.document["exit_status"] == "reproduced"
    assert [one["kind"] for one in cli_job.document["examples"]["examples"]] == ["shows"] * 3 + ["keeps"]
    assert asked(cli_job) == ["plan.1"]
    assert cli_job.branches == []
    plan = cli_job.directory / "mine.md"
    plan.write_text((cli_job.out / "plan.md").read_text())
    done = cli_job.fix("--plan", str(plan))
    assert done.code == 0, done.text
    assert asked(cli_job).count("plan.1") == 1, "the examples were not paid for again"
    assert cli_job.document["verification"]["verdict"] == "proved"


def test_issue_that_cannot_be_shown_comes_with_one_list_of_questions(cli_job: CliJob) -> None:
    today = example("split(100, 4)", "[25, 25, 25, 25]", "Equal shares.", "one cent is lost", IMPORTS)
    crashes = example("split(1, 0", "[1]", "One person gets all.", "one cent is lost", IMPORTS)
    asking = {"summary": "Split by three and by four; both came to the sum.", "steps": [], "files": []}
    missing = planned(today, crashes, questions=["Which version?", "How many people?"], **asking)
    cli_job.record([missing])
    done = cli_job.reproduce("--json")
    assert done.code == 27, done.text
    for text in ("Split by three", "Equal shares: it prints today", "One person gets all: ", "Which version?"):
        assert text in done.text
    document = cli_job.document
    assert (document["exit_status"], document["plan"]["questions"][1]) == ("not_reproduced", "How many people?")
    assert json.dumps(document, indent=2) in done.text


def test_an_issue_that_works_already_is_said_to(cli_job: CliJob) -> None:
    cli_job.issue.write_text("# split\n\n`split(100, 4)` must give `[25, 25, 25, 25]`.\n")
    own = example("split(100, 4)", "[25, 25, 25, 25]", "Equal.", "`split(100, 4)` must give", IMPORTS)
    other = example("split(60, 3)", "[20, 20, 20]", "Equal, too.", "`split(100, 4)` must give", IMPORTS)
    cli_job.record([planned(own, other), ScriptedReplies("plan.2", "", planned(own, other).calls)])
    done = cli_job.reproduce()
    assert done.code == 28, done.text
    assert "prints today" in done.text
