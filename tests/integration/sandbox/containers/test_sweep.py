"""The sweep of a worker or a command line: containers of jobs that have ended go, where an engine was used at all."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.config.settings import settings_from
from app.core.job import Budget, Job
from app.core.task import Issue, Task
from app.jobs.schema import prepare_local_tables
from app.jobs.store import JobStore
from app.jobs.tables import sqlite_engine
from app.pipeline.wiring.sandboxes import sweep_everywhere

ENGINE = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2" in
"ps --all") echo "one two" ;;
"container inspect")
  [ $3 = one ] && job=ended || job=living
  echo '[{{"Config": {{"Labels": {{"agent-fix-key": "'$job'.work"}}}}}}]' ;;
esac
"""


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_only_those_of_jobs_that_have_ended(tmp_path: Path, engine: str) -> None:
    log, program = tmp_path / "log", tmp_path / engine
    program.write_text(ENGINE.format(log=log))
    program.chmod(0o755)
    settings = settings_from({"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path / "state")
    (tmp_path / "state").mkdir()
    database = sqlite_engine(tmp_path / "state" / "jobs.db")
    store = JobStore(database, lambda: datetime.now(UTC))
    prepare_local_tables(database)
    task = Task(repository="/r", issue=Issue(title="T", body="B"), base="0" * 40, base_ref="HEAD", slug="t")
    for name in ("living", "ended"):
        job = Job(id=name, task=task, branch=name, budget=Budget(), model="m", created_at=datetime.now(UTC))
        store.create(job, name)
    store.stop("ended", "enough")
    assert sweep_everywhere(settings, store) == 0
    assert not log.exists(), "nothing is asked where no container was ever made"
    (tmp_path / "state" / "caches" / engine).mkdir(parents=True)
    assert sweep_everywhere(settings, store) == 1
    said = log.read_text().splitlines()
    assert [line.split()[-1] for line in said if line.startswith("rm ")] == ["one"]
    program.write_text("#!/bin/sh\nexit 1\n")
    assert sweep_everywhere(settings, store) == 0
    database.dispose()
