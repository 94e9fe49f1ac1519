"""Kinds of tasks and several attempts: what is proved, what people are told, what stays untouched."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from app.cli.fix import FixOptions, find_or_create
from app.cli.local_context import LocalContext, LocalJob
from app.cli.run_local import pull_request
from app.config.repository import DIRECTORY
from app.config.settings import settings_from
from app.core.errors import AgentFixError
from app.core.job import JobResult
from app.core.plan import Plan
from app.pipeline.wiring.job_runner import JobRunner
from tests.support.memory_journal import Died, MemoryJournal
from tests.support.recorded_answers import RecordedAnswers, write
from tests.support.recorded_progress import ListProgress
from tests.support.repositories import commit_files, git, make_repository
from tests.support.written_examples import example

WRONG = "def double(number):\n    return number * number\n"
RIGHT = "def double(number):\n    return number + number\n"
TEST = (
    "import unittest\nfrom maths import double\n\n\n"
    "class TestDouble(unittest.TestCase):\n    def test_two(self):\n        self.assertEqual(double(2), 4)\n"
)
MORE = f"{TEST}\n    def test_three(self):\n        self.assertEqual(double(3), 6)\n"
PROMPTS = {
    f"{DIRECTORY}/tests.md": "---\nreplace: true\n---\nLook into maths first.\n",
    f"{DIRECTORY}/test.md": "Obey.\n",
}
COMMAND = "python3 -m unittest test_maths"
HALF = RIGHT.replace("return number + number", "return number + number if number > 0 else number * number")
_QUOTE = "double(3) is 9 and should be 6"
_IMPORTS = "from maths import double"
EXAMPLES = (
    example("double(3)", "6", "The reported number is doubled.", _QUOTE, _IMPORTS),
    example("double(-512)", "-1024", "So is a negative one.", _QUOTE, _IMPORTS),
)


class Site:
    """A repository and one job on it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.repository = make_repository(place / "repo", {"maths.py": WRONG, "test_maths.py": TEST})
        self.progress = ListProgress()
        self.local_context = LocalContext(settings_from({"PATH": os.environ["PATH"]}, place / "state"))
        self.order: LocalJob
        self.harness: JobRunner

    def sit_down(self, recording: RecordedAnswers, issue: str, **options: object) -> None:
        path = self.place / "issue.md"
        path.write_text(issue)
        model = f"recorded/{recording.save(self.place / 'answers.jsonl')}"
        asked = FixOptions(repo=self.repository, issue=path, model=model, out=self.place / "out", plan_mode="none")
        self.order = find_or_create(replace(asked, **options), self.local_context)  # type: ignore[arg-type]  # their own names
        self.harness = self.local_context.runner(self.order, self.progress, _agree)

    def body(self, result: JobResult) -> str:
        assert result.verification is not None
        return pull_request(self.order, result, result.verification).body

    def show(self, result: JobResult, path: str) -> str:
        return git(self.repository, "show", f"{result.branch}:{path}")


async def _agree(plan: Plan) -> Plan:
    return plan


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


# tests for a fix that is there


async def test_a_regression_test_is_tested_by_taking_the_fix_back(site: Site) -> None:
    """Beside it the repository has prompts of its own, one of which cannot be used."""
    commit_files(site.repository, PROMPTS)
    fix = commit_files(site.repository, {"maths.py": RIGHT, "CHANGELOG.md": "- doubled\n"}, "Double, not square (#41)")
    commit_files(site.repository, {"CHANGELOG.md": "- doubled\n- later\n", "maths.py": f"# maths\n{RIGHT}"})
    recording = RecordedAnswers().turn("Write.", write("test_maths.py", MORE)).submit("Tests three.", COMMAND)
    site.sit_down(recording, "Add a regression test for #41\n")
    assert (site.order.job.kind, site.order.job.task.fixed_by) == ("tests", fix)
    result = await site.harness.work(MemoryJournal())
    assert (result.exit_status, result.verification and result.verification.verdict) == ("pr_opened", "tested")
    body = site.body(result)
    assert re.search(r"🔴 fails<br>exit code 1, [\d.]+ s", body)
    assert fix[:10] in body
    assert "**Tested.** The new tests fail without the fix and pass with it." in body
    assert "Worked on as tests for code that stays as it is, because its title says" in body
    assert [each.text for each in site.harness.kind.overrides.files] == ["Look into maths first."]
    assert "`.github/agent-fix/prompts/test.md` is ignored" in body
    assert site.show(result, "maths.py") == f"# maths\n{RIGHT}".rstrip()


async def test_the_known_fix_is_shown_to_the_model(site: Site) -> None:
    fix = commit_files(site.repository, {"maths.py": RIGHT}, "Double, not square")
    site.sit_down(RecordedAnswers(), "Cover doubling\n", fixed_by="HEAD")
    (section,) = site.harness.kind.shown.task.sections
    assert section.title == f"The fix {fix[:10]}, which is already on the branch"
    assert "-    return number * number\n+    return number + number" in section.text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"fixed_by": "nothing"}, "is not a commit"),
        ({"fixed_by": "HEAD", "kind": "feature"}, "cannot be combined with --kind feature"),
        ({"attempts": 0}, "--attempts must be between 1 and 5, not 0"),
        ({"attempts": 6}, "--attempts must be between 1 and 5, not 6"),
    ],
)
def test_an_impossible_request_is_refused(site: Site, options: dict[str, object], said: str) -> None:
    with pytest.raises(AgentFixError, match=said):
        site.sit_down(RecordedAnswers(), "Doubling\n", **options)


# several attempts


def attempts() -> RecordedAnswers:
    """The first mends half of it and disputes the rest, the second mends it."""
    recording = RecordedAnswers().plan(examples=EXAMPLES).turn("Mend half of it.", write("maths.py", HALF))
    disputed = {"2": "The issue says nothing of negative numbers."}
    for _ in range(2):
        recording = recording.submit("Mended half of it.", COMMAND, objections=disputed)
    recording = recording.counter(reason="I see nothing.").attempt(2).counter(reason="Nor here.")
    recording = recording.turn("Mend.", write("maths.py", RIGHT), write("test_maths.py", MORE))
    return recording.submit("Mended.", COMMAND)


async def test_the_first_that_is_proved_ends_the_attempts_and_a_crash_repeats_none(site: Site) -> None:
    site.sit_down(attempts(), f"Doubling squares\n\n{_QUOTE}\n", attempts=3, plan_mode="auto")
    journal = MemoryJournal(die_at="attempt.2.turn.1.act")
    with pytest.raises(Died):
        await site.harness.work(journal)
    site.harness = site.local_context.runner(site.order, site.progress, _agree)
    resumed = journal.resumed()
    result = await site.harness.work(resumed)
    assert resumed.executed[0] == "attempt.2.turn.1.act"
    assert not any(name.startswith(("turn.", "verify.")) for name in resumed.executed)
    assert result.usage.calls == 8, "a reviewer is asked about each attempt"
    assert [(each.verdict, each.taken) for each in result.attempts] == [("unproved", False), ("proved", True)]
    assert site.show(result, "maths.py") == RIGHT.rstrip(), "nothing of the first is in the second's tree"
    assert "2 attempts of 3 requested: attempt 2 is proved, so no more were made." in site.body(result)
    assert "| 2 (taken) | proved |" in site.body(result)
    lines = [json.loads(line) for line in site.harness.blobs.get(result.trajectory).decode().splitlines()]
    assert [line["attempt"] for line in lines] == [1, 1, 1, 2, 2]
    assert not list((site.place / "state" / "sandboxes").glob("*.work*"))
