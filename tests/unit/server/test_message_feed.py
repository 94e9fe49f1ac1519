"""The agent reads what people write to its job: messages, and what they write when they let it continue."""

from pathlib import Path

from app.config.settings import settings_from
from app.server.context import ServerContext
from app.server.job_process import MessageFeed
from tests.support.server_jobs import job, job_context, trigger


async def test_agent_reads_messages_and_what_came_with_continue(tmp_path: Path) -> None:
    server = ServerContext(settings_from({"HOME": str(tmp_path), "AGENT_FIX_STATE_DIR": str(tmp_path / "state")}))
    server.prepare()
    server.queue.admit(job("a"), job_context(), trigger("t"), ready=True)
    server.messages.add("a", "steer", key="1", who="ada", text="mind the tests")
    server.messages.add("a", "approve", key="2", who="ada", text="summary: a plan")
    server.messages.add("a", "continue", key="3", who="ada")
    server.messages.add("a", "continue", key="4", who="grace", text="but keep the API")
    feed = MessageFeed(server, "a")
    first, second = await feed.since(0)
    assert [(each.author, each.text) for each in (first, second)] == [
        ("ada", "mind the tests"),
        ("grace", "but keep the API"),
    ]
    assert await feed.since(second.seq) == ()
    server.engine.dispose()
