"""The job table: one owner at a time, the same command finds its unfinished job, nothing finished is done again."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.core.errors import AgentFixError, ExitCode
from app.core.job import Budget, Job
from app.core.task import Issue, Task
from app.jobs.queries import JobOverview
from app.jobs.schema import prepare_local_tables
from app.jobs.store import JobBlobs, JobStore, StoredProgress
from app.jobs.tables import sqlite_engine
from tests.support.recorded_progress import ListProgress

START = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Iterator[JobStore]:
    engine = sqlite_engine(tmp_path / "jobs.db")
    prepare_local_tables(engine)
    yield JobStore(engine, Clock())
    engine.dispose()


def job(name: str, created: datetime = START) -> Job:
    task = Task(repository="/r", issue=Issue(title="T", body="B"), base="0" * 40, base_ref="HEAD", slug="t")
    return Job(id=name, task=task, branch="agent-fix/t", budget=Budget(), model="m", created_at=created)


def test_job_is_stored_unchanged(store: JobStore) -> None:
    store.create(job("a1"), "key")
    row = store.get("a1")
    assert row is not None
    assert row.job == job("a1")
    assert (row.state, row.epoch, row.owner) == ("queued", 0, None)
    assert store.get("zz") is None


def test_only_the_progress_log_is_written_without_full_sync(tmp_path: Path) -> None:
    durable, log = sqlite_engine(tmp_path / "jobs.db"), sqlite_engine(tmp_path / "jobs.db", synced=False)
    levels = [engine.connect().exec_driver_sql("PRAGMA synchronous").scalar() for engine in (durable, log)]
    assert levels == [2, 1]  # FULL, NORMAL
    store = JobStore(durable, Clock(), log=log)
    prepare_local_tables(durable)
    store.add_progress("a1", "note", "heard")
    assert [row.text for row in store.progress_since("a1")] == ["heard"]
    durable.dispose()
    log.dispose()


def test_key_finds_an_unfinished_job_until_its_result_is_reported(store: JobStore) -> None:
    store.create(job("a1"), "key")
    assert store.unfinished("other") is None
    store.finish("a1", "pr_opened", "", {"x": 1})
    found = store.unfinished("key")
    assert found is not None, "a result that nobody was told of is told, not made again"
    store.mark_reported("a1")
    assert store.unfinished("key") is None


def test_a_cancelled_job_is_not_taken_up_again(store: JobStore) -> None:
    store.create(job("a1"), "key")
    store.enter("a1", "stopped", "cancelled")
    assert store.unfinished("key") is None


def test_newest_job_of_a_key_counts(store: JobStore) -> None:
    store.create(job("a1"), "key")
    store.mark_reported("a1")
    store.finish("a1", "error", "", {})
    store.create(job("a2"), "key")
    found = store.unfinished("key")
    assert found is not None
    assert found.job.id == "a2"


def test_job_of_a_live_process_is_not_taken(store: JobStore) -> None:
    script = (
        "import sys\nfrom datetime import datetime, UTC\nfrom pathlib import Path\n"
        "from app.jobs.store import JobStore\nfrom app.jobs.tables import sqlite_engine\n"
        "JobStore(sqlite_engine(Path(sys.argv[1])), lambda: datetime.now(UTC)).acquire('a1')\n"
        "print('have it', flush=True); sys.stdin.read()"
    )
    store.create(job("a1"), "key")
    path = str(store.engine.url.database)
    with subprocess.Popen(
        [sys.executable, "-c", script, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline().strip() == "have it"
        with pytest.raises(AgentFixError) as refused:
            store.acquire("a1")
        assert refused.value.code == ExitCode.BUSY
        assert str(other.pid) in refused.value.message
        other.kill()
        other.wait()
    assert store.acquire("a1") == 2, "a dead owner's job is taken over, and the epoch says so"
    store.release("a1")
    row = store.get("a1")
    assert row is not None
    assert row.live_owner is None


def test_find_by_prefix_reports_ambiguous_and_unknown_ids(store: JobStore) -> None:
    store.create(job("ab1"), "k1")
    store.create(job("ab2"), "k2")
    assert store.find("ab1").job.id == "ab1"
    with pytest.raises(AgentFixError, match="Several jobs"):
        store.find("ab")
    with pytest.raises(AgentFixError, match="No job"):
        store.find("%")


def test_progress_is_kept_in_order_without_streamed_fragments(store: JobStore) -> None:
    watcher = ListProgress()
    progress = StoredProgress(store, "a1", watcher)
    progress.report("note", "one")
    progress.report("text", "str")
    progress.report("step", "two")
    kept = list(store.progress_since("a1"))
    assert [(row.kind, row.text) for row in kept] == [("note", "one"), ("step", "two")]
    assert [row.text for row in store.progress_since("a1", after=kept[0].seq)] == ["two"]
    assert watcher.said == [("note", "one"), ("text", "str"), ("step", "two")]


def test_blobs_are_kept_once_and_per_job(store: JobStore) -> None:
    mine, other = JobBlobs(store.engine, "a1"), JobBlobs(store.engine, "a2")
    digest = mine.put(b"bytes\0")
    assert mine.put(b"bytes\0") == digest
    assert mine.get(digest) == b"bytes\0"
    with pytest.raises(KeyError):
        other.get(digest)


def test_stop_is_final_unless_a_branch_was_published(store: JobStore) -> None:
    store.create(job("a1"), "key")
    progress = StoredProgress(store, "a1", ListProgress())
    progress.report("state", "publishing")
    assert not store.stop("a1", "cancelled"), "its branch is being made"
    progress.report("state", "working")
    assert store.stop("a1", "cancelled")
    assert not store.stop("a1", "again")
    row = store.get("a1")
    assert row is not None
    assert (row.state, row.reason, row.owner) == ("stopped", "cancelled", None)


def test_reported_states_are_stored_and_other_words_ignored(store: JobStore) -> None:
    store.create(job("a1"), "key")
    progress = StoredProgress(store, "a1", ListProgress())
    progress.report("state", "verifying")
    progress.report("state", "proved: everything passed")
    progress.report("state", "error")
    progress.report("note", "publishing")
    row = store.get("a1")
    assert row is not None
    assert row.state == "verifying"


def test_streamed_model_text_is_stored_in_parts_for_viewers(store: JobStore) -> None:
    progress = StoredProgress(store, "a1", ListProgress(), streams=True)
    for piece in ("Let ", "me ", "think."):
        progress.report("text", piece)
    progress.report("step", "1  Think")
    rows = [(row.kind, row.text) for row in store.progress_since("a1")]
    assert "".join(text for kind, text in rows if kind == "text") == "Let me think."
    assert rows[-1] == ("step", "1  Think")
    overview = JobOverview(store.engine, lambda: START)
    assert [row.kind for row in overview.log("a1")] == ["step"]
    assert len(overview.log("a1", streamed=True)) == len(rows)
