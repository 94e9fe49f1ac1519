"""What a model streams is kept while its job lasts, and the log for good."""

from datetime import UTC, datetime
from pathlib import Path

from app.jobs.schema import prepare_tables
from app.jobs.store import STREAMED_FOR, JobStore, prune_streamed
from tests.support.clock import SettableClock
from tests.support.databases import database
from tests.support.server_jobs import issue_ref, job


def test_streamed_text_goes_once_its_job_has_ended_a_while_ago(tmp_path: Path) -> None:
    with database("sqlite", tmp_path) as engine:
        prepare_tables(engine)
        clock = SettableClock(datetime(2026, 11, 22, 12, tzinfo=UTC))
        store = JobStore(engine, clock)
        for number, name in enumerate(("ended", "works")):
            store.create(job(name, issue_ref(number)), name)
            store.add_progress(name, "text", "I think that")
            store.add_progress(name, "step", "turn 1")
        store.enter("ended", "stopped")
        assert prune_streamed(engine, clock.now) == 0
        clock.now += 2 * STREAMED_FOR
        assert prune_streamed(engine, clock.now) == 1
        kept = {name: [row.kind for row in store.progress_since(name)] for name in ("ended", "works")}
        assert kept == {"ended": ["step"], "works": ["text", "step"]}
