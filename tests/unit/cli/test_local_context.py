"""The state directory that the commands of one user share."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import sqlalchemy as sa

from app.cli.local_context import LocalContext
from app.config.settings import settings_from


def test_commands_that_start_at_once_share_a_new_state_directory(tmp_path: Path) -> None:
    settings = settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path / "state")})
    contexts = [LocalContext(settings) for _ in range(8)]
    begin = threading.Barrier(len(contexts))

    def prepare(context: LocalContext) -> None:
        begin.wait()
        context.prepare()
        assert context.store.get("none") is None

    with ThreadPoolExecutor(len(contexts)) as pool:
        list(pool.map(prepare, contexts))
    for context in contexts:
        with context.store.engine.connect() as db:
            assert sa.inspect(db).has_table("lessons")
        context.store.engine.dispose()
