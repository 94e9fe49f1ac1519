"""One lease for three queues: a delivery, a job and an effect of a process that has ended are claimed again at once."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.core.processes import this_process
from app.jobs.inbox import Delivery, Inbox
from app.publish.effects import UpdateStatusComment
from tests.support.databases import DIALECTS, database
from tests.support.job_queue import Server
from tests.support.server_jobs import issue_ref

Claim = Callable[[str], object]


@pytest.fixture(params=DIALECTS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    with database(request.param, tmp_path) as engine:
        yield Server(engine)


@pytest.fixture(params=["deliveries", "jobs", "effects"])
def claim(request: pytest.FixtureRequest, server: Server) -> Claim:
    """Claims the one row of a queue for an owner; what it returns is false if somebody has it."""
    if request.param == "deliveries":
        inbox = Inbox(server.engine, server.clock)
        inbox.store([Delivery("d-1", "issues", b"{}")])
        return inbox.claim
    server.admit("one")
    if request.param == "jobs":
        return server.claim
    server.outbox.add("one", 0, issue_ref(), UpdateStatusComment(body="x"))
    return server.outbox.claim


def ended_process() -> str:
    code = "from app.core.processes import this_process; print(this_process())"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_row_of_an_ended_process_is_claimed_at_once(claim: Claim) -> None:
    assert claim(ended_process())
    assert claim(this_process())
    assert not claim("another"), "this process lives"


def test_row_of_a_process_elsewhere_is_held_until_its_lease_expires(claim: Claim) -> None:
    assert claim("elsewhere:1:1-00000000")
    assert not claim(this_process()), "its lease has to expire first"
