"""`/agent remember` and `/agent forget`: who may write there does, everybody else is not even answered."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.jobs.lessons import SqlLessons
from app.lessons.base import MAX_TEXT, MOST_TOLD, Citation, Draft, Lesson, of_forge
from app.publish import replies
from tests.fakes.github.world import Repo
from tests.front_desk import DEFAULTS, FrontDesk, front_desk, later
from tests.test_markdown import CASES, check, shown


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[FrontDesk]:
    async with front_desk(tmp_path) as made:
        yield made


def store(desk: FrontDesk, repository: Repo | None = None) -> SqlLessons:
    return SqlLessons(desk.engine, desk.books.clock, of_forge((repository or desk.repo).id))


def texts(desk: FrontDesk) -> list[str]:
    return [lesson.text for lesson in store(desk).all()]


async def test_what_is_told_is_remembered_with_its_number(desk: FrontDesk) -> None:
    await desk.says("/agent remember amounts are\n\ninteger cents")
    assert desk.answer.startswith("Remembered as lesson 1, for 365 days.")
    assert "`/agent forget 1` takes it back." in desk.answer
    (lesson,) = store(desk).all()
    assert (lesson.text, lesson.kind, lesson.author) == ("amounts are integer cents", "told", "ada")
    assert desk.jobs() == []
    assert desk.decided() == ["remembered 1"]


async def test_a_lesson_is_taken_back_by_its_number(desk: FrontDesk) -> None:
    await desk.says("/agent remember amounts are integer cents")
    await desk.says("/agent forget #1")
    assert desk.answers()[1] == "Lesson 1 is forgotten.\n"
    assert texts(desk) == []
    await desk.says("/agent remember amounts are decimals")
    assert "lesson 2" in desk.answers()[2], "a number is never given twice"


async def test_an_unknown_number_is_answered_with_what_there_is(desk: FrontDesk) -> None:
    await desk.says("/agent forget 9")
    assert desk.answers()[0].startswith("There is no lesson 9 here.\n\nNothing is remembered here yet.")
    await desk.says("/agent remember amounts are integer cents")
    await desk.says("/agent forget 9")
    assert "- 1: amounts are integer cents (told by ada, until " in desk.answers()[2]


async def test_alone_it_lists_what_is_remembered(desk: FrontDesk) -> None:
    await desk.says("/agent remember")
    assert "Nothing is remembered here yet." in desk.answers()[0]
    await desk.says("/agent remember amounts are integer cents")
    citation = Citation(path="app/money.py", commit="a" * 40, digest="d")
    store(desk).learn([Draft(text="Rates are floats.", kind="trap", citation=citation, job="j1", author="agent")])
    store(desk).recall("j2", store(desk).all())
    await desk.says("/agent remember")
    listed = shown(desk.answers()[2])
    assert listed.index("amounts are integer cents (told by ada, shown to 1 job") < listed.index("Rates are floats.")
    assert "learned by job j1, see  app/money.py ," in listed


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x" * (MAX_TEXT + 1), "it has 301 characters; a lesson has at most 300."),
        ("the key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "it looks as if it held a secret."),
        ("short", "it is shorter than 12 characters."),
    ],
)
async def test_what_cannot_be_kept_is_said(desk: FrontDesk, text: str, why: str) -> None:
    await desk.says(f"/agent remember {text}")
    assert desk.answer == f"Not remembered: {why}\n"
    assert texts(desk) == []


async def test_there_is_room_for_so_many(desk: FrontDesk) -> None:
    for number in range(MOST_TOLD):
        store(desk).tell(Draft(text=f"Rule number {number}.", kind="told", author="ada"), f"k{number}")
    await desk.says("/agent remember one rule too many")
    assert f"{MOST_TOLD} lessons that people told are kept already" in desk.answer


@pytest.mark.parametrize("role", ["read", "triage", "none"])
async def test_who_may_not_write_teaches_nothing(desk: FrontDesk, role: str) -> None:
    store(desk).tell(Draft(text="amounts are integer cents", kind="told", author="ada"), "k")
    sam = desk.person("sam", role)
    await desk.says("/agent remember tests are not needed", by=sam)
    await desk.says("/agent forget 1", by=sam)
    await desk.says("/agent remember", by=sam)
    assert desk.answers() == []
    assert texts(desk) == ["amounts are integer cents"]


async def test_it_is_the_same_however_often_it_is_delivered(desk: FrontDesk) -> None:
    await desk.says("/agent remember amounts are integer cents")
    await desk.says("/agent forget 1")
    for delivery in list(desk.world.deliveries):
        await desk.hooks.attempt(delivery)
    later(desk, minutes=1)
    await desk.settle()
    assert [answer.split(".")[0] for answer in desk.answers()] == [
        "Remembered as lesson 1, for 365 days",
        "Lesson 1 is forgotten",
    ]


async def test_where_none_are_kept_it_is_said(tmp_path: Path) -> None:
    """Also in a workflow, where nothing stays from one to the next."""
    from dataclasses import replace

    async with front_desk(tmp_path, defaults=replace(DEFAULTS, lessons=False)) as desk:
        for words in ("remember amounts are cents", "remember", "forget 1"):
            await desk.says(f"/agent {words}")
        assert set(desk.answers()) == {
            "No lessons are kept here. Write them into `AGENTS.md`, which every job reads.\n"
        }
        assert texts(desk) == []


@pytest.mark.parametrize(
    ("how", "left"),
    [
        ("turned down", ["Use decimals.", "Rates are floats."]),
        ("merged", ["Use decimals.", "Amounts are cents.", "Rates are floats."]),
        ("somebody's", ["Use decimals.", "Amounts are cents.", "Rates are floats."]),
    ],
)
async def test_a_pull_request_that_is_turned_down_takes_its_lessons_along(
    desk: FrontDesk, how: str, left: list[str]
) -> None:
    await desk.labels()
    first = desk.job.job
    store(desk).tell(Draft(text="Use decimals.", kind="told", author="ada"), "k1")
    store(desk).learn([Draft(text="Amounts are cents.", kind="trap", job=first.id, author="agent")])
    store(desk).learn([Draft(text="Rates are floats.", kind="trap", job="another", author="agent")])
    desk.ends("pr_opened", branch=first.branch)
    pull = desk.open_pull(desk.owner if how == "somebody's" else desk.world.bot, branch=first.branch)
    assert pull.pull is not None
    pull.pull.merged_at = desk.world.now if how == "merged" else None
    for _ in range(2):
        await desk.hooks.turned(desk.repo, desk.ground.installation, desk.owner, pull, "closed")
        await desk.settle()
    assert texts(desk) == left


@pytest.mark.parametrize("case", CASES)
def test_a_list_quotes_harmlessly(case: str) -> None:
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
    return Lesson(number=number, text=text, kind="told", author="ada", created=now, expires=now)
