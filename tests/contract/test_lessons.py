"""What a store of lessons promises, on both databases: of one repository, few, with numbers that never come again."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.core.lessons import (
    LIVES,
    MAX_LEARNED,
    MAX_REMEMBERED,
    Citation,
    LessonDraft,
    LessonKind,
    github_repository_key,
    local_repository_key,
)
from app.jobs.lessons import FORGOTTEN_LIVES, SqlLessonStore, prune_lessons
from app.jobs.schema import prepare_tables
from app.jobs.store import JobStore
from app.jobs.tables import lessons as rows
from app.jobs.tables import recalled_lessons
from tests.support.clock import SettableClock
from tests.support.databases import DIALECTS, database
from tests.unit.jobs.test_store import job

NOW = datetime(2026, 3, 1, tzinfo=UTC)
HERE, ELSEWHERE = github_repository_key(1), github_repository_key(2)
CITED = Citation(path="app/money.py", commit="a" * 40, digest="d" * 32)


@pytest.fixture(params=DIALECTS, scope="module")
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    with database(request.param, tmp_path_factory.mktemp("lessons")) as made:
        prepare_tables(made)
        yield made


@pytest.fixture(autouse=True)
def emptied(engine: Engine) -> None:
    with engine.begin() as db:
        for table in ("lessons", "lesson_numbers", "recalled_lessons", "jobs"):
            db.exec_driver_sql(f"DELETE FROM {table}")


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock(NOW)


@pytest.fixture
def store(engine: Engine, clock: SettableClock) -> SqlLessonStore:
    return SqlLessonStore(engine, clock, HERE)


def draft(text: str, kind: LessonKind = "trap", **more: object) -> LessonDraft:
    about = {"citation": CITED, "job": "j1", "author": "agent"} if kind != "remembered" else {"author": "ada"}
    return LessonDraft.model_validate({"text": text, "kind": kind, **about, **more})


def texts(store: SqlLessonStore) -> list[str]:
    return [lesson.text for lesson in store.all()]


def test_a_lesson_comes_back_as_it_was_learned(store: SqlLessonStore) -> None:
    (lesson,) = store.learn([draft("Amounts are cents.")])
    assert store.all() == (lesson,)
    assert (lesson.number, lesson.text, lesson.kind, lesson.citation) == (1, "Amounts are cents.", "trap", CITED)
    assert (lesson.job, lesson.author, lesson.created, lesson.uses) == ("j1", "agent", NOW, 0)
    assert lesson.expires == NOW + timedelta(days=90)


def test_a_lesson_from_a_person_expires_later(store: SqlLessonStore) -> None:
    lesson = store.remember(draft("Use decimals.", "remembered"), "k1")
    assert lesson is not None
    assert (lesson.author, lesson.citation, lesson.expires) == ("ada", None, NOW + LIVES["remembered"])
    assert LIVES["remembered"] > LIVES["trap"]


def test_another_repository_knows_nothing_of_it(store: SqlLessonStore, engine: Engine, clock: SettableClock) -> None:
    other = SqlLessonStore(engine, clock, ELSEWHERE)
    (lesson,) = store.learn([draft("Amounts are cents.")])
    store.recall("j2", [lesson])
    assert other.all() == ()
    assert other.forget(lesson.number, "k") is False
    other.remove_outdated([lesson.number])
    assert other.lessons_shown_to("j2") is None
    assert texts(store) == ["Amounts are cents."]
    assert [each.number for each in other.learn([draft("Rates are floats.")])] == [1]


def test_repository_keys_of_github_and_of_paths_differ() -> None:
    assert github_repository_key(12) != local_repository_key(Path("12"))
    assert local_repository_key(Path("/a")) != local_repository_key(Path("/b"))


def test_remembering_the_same_text_twice_stores_one_lesson(store: SqlLessonStore) -> None:
    first = store.learn([draft("Amounts are cents."), draft("Rates are floats.")])
    again = store.learn([draft("Amounts are cents."), draft("Rates are floats.")])
    assert again == first
    told = store.remember(draft("Use decimals.", "remembered"), "k1")
    assert store.remember(draft("Use decimals.", "remembered"), "k1") == told
    assert [lesson.number for lesson in store.all()] == [1, 2, 3]


def test_a_lesson_learned_again_lives_longer(store: SqlLessonStore, clock: SettableClock) -> None:
    store.learn([draft("Amounts are cents.")])
    clock.now += timedelta(days=80)
    assert store.learn([draft("amounts are cents.", job="j2")]) == ()
    assert store.learn([draft("Amounts are cents.", job="j3")]) == ()
    lesson = store.all()[0]
    assert lesson.expires == clock.now + timedelta(days=90)


def test_a_topic_keeps_only_the_newest_lesson(store: SqlLessonStore) -> None:
    (first,) = store.learn([draft("The suite passes.", "how_to_test", topic="suite")])
    (second,) = store.learn([draft("The suite fails.", "how_to_test", topic="suite", job="j2")])
    assert (second.number, second.text, second.job) == (first.number, "The suite fails.", "j2")
    assert texts(store) == ["The suite fails."]


def test_a_forgotten_lesson_is_gone_and_not_learned_again(
    store: SqlLessonStore, engine: Engine, clock: SettableClock
) -> None:
    (lesson,) = store.learn([draft("Amounts are cents.")])
    assert store.forget(lesson.number, "k1") is True
    assert store.all() == ()
    assert store.learn([draft("Amounts are cents.", job="j2")]) == ()
    with engine.connect() as db:
        assert [row.text for row in db.execute(rows.select())] == [""], "nothing of its text is kept"
    clock.now += timedelta(seconds=FORGOTTEN_LIVES + 1)
    assert [each.number for each in store.learn([draft("Amounts are cents.", job="j3")])] == [2]


def test_forgetting_is_answered_once_per_command(store: SqlLessonStore) -> None:
    (lesson,) = store.learn([draft("Amounts are cents.")])
    assert [store.forget(lesson.number, key) for key in ("k1", "k1", "k2")] == [True, True, False]
    assert store.forget(99, "k3") is False


def test_a_number_is_never_given_twice(store: SqlLessonStore) -> None:
    (first,) = store.learn([draft("Amounts are cents.")])
    store.remove_outdated([first.number])
    assert store.all() == ()
    (second,) = store.learn([draft("Amounts are cents.", job="j2")])
    assert (first.number, second.number) == (1, 2)


def test_a_forgotten_lesson_can_be_added_again(store: SqlLessonStore) -> None:
    told = store.remember(draft("Use decimals.", "remembered"), "k1")
    assert told is not None
    store.forget(told.number, "k2")
    again = store.remember(draft("Use decimals.", "remembered"), "k3")
    assert again is not None
    assert again.number == 2
    assert texts(store) == ["Use decimals."]


def test_a_job_does_not_change_a_persons_lesson(store: SqlLessonStore) -> None:
    store.remember(draft("Use decimals.", "remembered"), "k1")
    kept = store.all()
    assert store.learn([draft("Use decimals.")]) == ()
    assert store.all() == kept


def test_an_expired_lesson_is_not_shown(store: SqlLessonStore, engine: Engine, clock: SettableClock) -> None:
    store.learn([draft("Amounts are cents.")])
    store.recall("j1", store.all())
    clock.now += timedelta(days=90)
    assert store.all() == ()
    assert store.forget(1, "k") is False
    clock.now += timedelta(seconds=1)
    assert prune_lessons(engine, clock.now) == 2
    with engine.connect() as db:
        assert db.execute(sa.select(sa.func.count()).select_from(rows)).scalar() == 0
        assert db.execute(sa.select(sa.func.count()).select_from(recalled_lessons)).scalar() == 0


def test_at_the_limit_the_least_used_lesson_is_removed(store: SqlLessonStore) -> None:
    for number in range(MAX_LEARNED):
        store.learn([draft(f"Fact number {number}.", job=f"j{number}")])
    store.recall("r1", store.all()[5:])
    store.remember(draft("Use decimals.", "remembered"), "k1")
    (new,) = store.learn([draft("The newest.", job="new")])
    there = store.all()
    assert len(there) == MAX_LEARNED + 1, "what people told does not count"
    assert "Fact number 0." not in texts(store)
    assert {"The newest.", "Use decimals.", "Fact number 1."} <= set(texts(store))
    store.recall("r2", there)
    store.learn([draft("Newer still.", job="newer")])
    assert "Newer still." in texts(store), "what was just learned is never what goes"
    assert new.number in {lesson.number for lesson in store.all()}


def test_remembering_beyond_the_limit_is_refused(store: SqlLessonStore) -> None:
    for number in range(MAX_REMEMBERED):
        assert store.remember(draft(f"Rule {number}.", "remembered"), f"k{number}") is not None
    assert store.remember(draft("One too many.", "remembered"), "k-more") is None
    assert store.remember(draft("Rule 3.", "remembered"), "k-again") is not None, "what is there is no more"
    store.forget(1, "k-forget")
    assert store.remember(draft("One too many.", "remembered"), "k-more") is not None


def test_lessons_shown_to_a_job_are_recorded_once(store: SqlLessonStore) -> None:
    first, second = store.learn([draft("Amounts are cents."), draft("Rates are floats.")])
    assert store.lessons_shown_to("j9") is None
    assert store.recall("j9", [first]) == (first,)
    assert store.recall("j9", [second]) == (first,), "whoever comes later is shown the same"
    store.forget(first.number, "k")
    assert store.lessons_shown_to("j9") == (first,), "its prompt does not change under it"
    assert store.recall("j10", []) == ()
    assert store.lessons_shown_to("j10") == ()


def test_uses_are_counted_once_a_job(store: SqlLessonStore) -> None:
    (lesson,) = store.learn([draft("Amounts are cents.")])
    store.recall("j8", [lesson])
    store.recall("j8", [lesson])
    store.recall("j9", [lesson])
    assert store.all()[0].uses == 2


def test_a_process_that_lost_its_job_stores_no_lesson(engine: Engine, clock: SettableClock) -> None:
    jobs = JobStore(engine, clock)
    jobs.create(job("j1"), "k")
    jobs.acquire("j1")
    before, now = (SqlLessonStore(engine, clock, HERE, fence=epoch) for epoch in (0, 1))
    assert before.learn([draft("Amounts are dollars.")]) == ()
    assert [lesson.text for lesson in now.learn([draft("Amounts are cents.")])] == ["Amounts are cents."]


def test_a_jobs_lessons_can_be_dropped(store: SqlLessonStore) -> None:
    store.learn([draft("Amounts are cents."), draft("Rates are floats.")])
    store.learn([draft("Dates are in UTC.", job="j2")])
    store.remember(draft("Use decimals.", "remembered"), "k1")
    assert store.source_jobs() == ("j1", "j2")
    assert [store.forget_job("j1"), store.forget_job("j1"), store.forget_job("")] == [2, 0, 0]
    assert texts(store) == ["Dates are in UTC.", "Use decimals."]
    assert store.learn([draft("Amounts are cents.", job="j3")]) != (), "it is dropped, not forgotten"


def test_concurrent_lessons_get_different_numbers(store: SqlLessonStore, engine: Engine, clock: SettableClock) -> None:
    def teach(number: int) -> Callable[[], object]:
        own = SqlLessonStore(engine, clock, HERE)
        return lambda: own.learn([draft(f"Fact number {number}.", job=f"j{number}"), draft("Seen by all.", job="x")])

    threads = [threading.Thread(target=teach(number)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there = store.all()
    assert sorted(lesson.number for lesson in there) == list(range(1, 10))
    assert sorted(texts(store)) == sorted([*(f"Fact number {number}." for number in range(8)), "Seen by all."])
