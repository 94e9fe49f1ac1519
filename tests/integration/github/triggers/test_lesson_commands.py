"""`/agent remember` and `/agent forget`: for people with write access; others get no answer."""

from pathlib import Path

import pytest

from app.core.lessons import MAX_REMEMBERED, MAX_TEXT, Citation, Lesson, LessonDraft, github_repository_key
from app.jobs.lessons import SqlLessonStore
from app.publish import replies
from tests.support.event_harness import DEFAULTS, EventHarness, event_harness, later
from tests.support.github.world import Repo
from tests.unit.publish.test_markdown import CASES, check, shown


def store(harness: EventHarness, repository: Repo | None = None) -> SqlLessonStore:
    return SqlLessonStore(harness.engine, harness.stores.clock, github_repository_key((repository or harness.repo).id))


def texts(harness: EventHarness) -> list[str]:
    return [lesson.text for lesson in store(harness).all()]


async def test_a_persons_lesson_is_stored_with_its_number(harness: EventHarness) -> None:
    await harness.says("/agent remember amounts are\n\ninteger cents")
    assert harness.answer.startswith("Added as lesson 1, for 365 days.")
    assert "`/agent forget 1` deletes it." in harness.answer
    (lesson,) = store(harness).all()
    assert (lesson.text, lesson.kind, lesson.author) == ("amounts are integer cents", "remembered", "ada")
    assert harness.jobs() == []
    assert harness.decided() == ["remembered 1"]


async def test_a_lesson_is_forgotten_by_its_number(harness: EventHarness) -> None:
    await harness.says("/agent remember amounts are integer cents")
    await harness.says("/agent forget #1")
    assert harness.answers()[1] == "Lesson 1 was deleted.\n"
    assert texts(harness) == []
    await harness.says("/agent remember amounts are decimals")
    assert "lesson 2" in harness.answers()[2], "a number is never given twice"


async def test_an_unknown_number_is_answered_with_what_there_is(harness: EventHarness) -> None:
    await harness.says("/agent forget 9")
    assert harness.answers()[0].startswith("Lesson 9 does not exist here.\n\nThere are no lessons here yet.")
    await harness.says("/agent remember amounts are integer cents")
    await harness.says("/agent forget 9")
    assert "- 1: amounts are integer cents (told by ada, until " in harness.answers()[2]


async def test_alone_it_lists_what_is_remembered(harness: EventHarness) -> None:
    await harness.says("/agent remember")
    assert "There are no lessons here yet." in harness.answers()[0]
    await harness.says("/agent remember amounts are integer cents")
    citation = Citation(path="app/money.py", commit="a" * 40, digest="d")
    store(harness).learn(
        [LessonDraft(text="Rates are floats.", kind="trap", citation=citation, job="j1", author="agent")]
    )
    store(harness).recall("j2", store(harness).all())
    await harness.says("/agent remember")
    listed = shown(harness.answers()[2])
    assert listed.index("amounts are integer cents (told by ada, shown to 1 job") < listed.index("Rates are floats.")
    assert "learned by job j1, see  app/money.py ," in listed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * (MAX_TEXT + 1), "it has 301 characters; the limit is 300."),
        ("the key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "it seems to contain a secret."),
        ("short", "it is shorter than 12 characters."),
    ],
)
async def test_a_lesson_that_cannot_be_stored_is_answered(harness: EventHarness, text: str, why: str) -> None:
    await harness.says(f"/agent remember {text}")
    assert harness.answer == f"Not remembered: {why}\n"
    assert texts(harness) == []


async def test_the_number_of_lessons_is_limited(harness: EventHarness) -> None:
    for number in range(MAX_REMEMBERED):
        store(harness).remember(
            LessonDraft(text=f"Rule number {number}.", kind="remembered", author="ada"), f"k{number}"
        )
    await harness.says("/agent remember one rule too many")
    assert f"the limit of {MAX_REMEMBERED} lessons added by people has been reached" in harness.answer


@pytest.mark.parametrize("role", ["read", "triage", "none"])
async def test_a_person_without_write_access_adds_no_lesson(harness: EventHarness, role: str) -> None:
    store(harness).remember(LessonDraft(text="amounts are integer cents", kind="remembered", author="ada"), "k")
    sam = harness.person("sam", role)
    await harness.says("/agent remember tests are not needed", by=sam)
    await harness.says("/agent forget 1", by=sam)
    await harness.says("/agent remember", by=sam)
    assert harness.answers() == []
    assert texts(harness) == ["amounts are integer cents"]


async def test_repeated_deliveries_of_a_lesson_command_change_nothing(harness: EventHarness) -> None:
    await harness.says("/agent remember amounts are integer cents")
    await harness.says("/agent forget 1")
    for delivery in list(harness.world.deliveries):
        await harness.hooks.attempt(delivery)
    later(harness, minutes=1)
    await harness.wait_until_handled()
    assert [answer.split(".")[0] for answer in harness.answers()] == [
        "Added as lesson 1, for 365 days",
        "Lesson 1 was deleted",
    ]


async def test_the_answer_says_so_if_lessons_are_off(tmp_path: Path) -> None:
    """Also in a workflow, where nothing stays from one to the next."""
    from dataclasses import replace

    async with event_harness(tmp_path, defaults=replace(DEFAULTS, lessons=False)) as harness:
        for words in ("remember amounts are cents", "remember", "forget 1"):
            await harness.says(f"/agent {words}")
        assert set(harness.answers()) == {
            "Lessons are not available here. Put them in `AGENTS.md`, which every job reads.\n"
        }
        assert texts(harness) == []


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("turned down", ["Use decimals.", "Rates are floats."]),
        ("merged", ["Use decimals.", "Amounts are cents.", "Rates are floats."]),
        ("somebody's", ["Use decimals.", "Amounts are cents.", "Rates are floats."]),
    ],
)
async def test_closing_a_pull_request_unmerged_drops_its_lessons(
    harness: EventHarness, how: str, left: list[str]
) -> None:
    await harness.labels()
    first = harness.job.job
    store(harness).remember(LessonDraft(text="Use decimals.", kind="remembered", author="ada"), "k1")
    store(harness).learn([LessonDraft(text="Amounts are cents.", kind="trap", job=first.id, author="agent")])
    store(harness).learn([LessonDraft(text="Rates are floats.", kind="trap", job="another", author="agent")])
    harness.ends("pr_opened", branch=first.branch)
    pull = harness.open_pull(harness.owner if how == "somebody's" else harness.world.bot, branch=first.branch)
    assert pull.pull is not None
    pull.pull.merged_at = harness.world.now if how == "merged" else None
    for _ in range(2):
        await harness.hooks.turned(harness.repo, harness.fake_github.installation, harness.owner, pull, "closed")
        await harness.wait_until_handled()
    assert texts(harness) == left


@pytest.mark.parametrize("case", CASES)
def test_a_list_quotes_text_safely(case: str) -> None:
    lesson = _lesson(1, case[:300] or "empty")
    check(replies.lesson_list([lesson.model_copy(update={"author": case[:80] or "x"})]))
    check(replies.unknown_lesson(3, [lesson]))


def test_a_list_fits_a_comment() -> None:
    many = [_lesson(number, f"Fact {number} " + "x" * 280) for number in range(1, 151)]
    listed = replies.lesson_list(many)
    assert len(listed) < 8_000
    assert listed.count("\n- ") < 150
    assert " more\n" in listed


def _lesson(number: int, text: str) -> Lesson:
    from datetime import UTC, datetime

    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Lesson(number=number, text=text, kind="remembered", author="ada", created=now, expires=now)
