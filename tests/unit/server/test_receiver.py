"""The receiver: verified, stored, answered; over ASGI and once over a real socket."""

import asyncio
import gzip
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote_plus

import httpx
import pytest
import sqlalchemy as sa

from app.jobs.tables import deliveries, open_database
from app.server.receiver import LATE, receiver
from tests.support import webhook_requests as made
from tests.support.published_payloads import COUNT, published
from tests.support.receiver_client import FullDisk, ReceiverClient, receiver_client

BODY = made.encode(made.label_added())


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[ReceiverClient]:
    async with receiver_client(tmp_path) as made_ready:
        yield made_ready


def said(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["status"]


async def test_a_signed_delivery_is_stored_and_then_answered(endpoint: ReceiverClient) -> None:
    assert said(await endpoint.post(BODY)) == (202, "stored")
    (found,) = endpoint.stored()
    assert (found.id, found.event, found.body) == ("d-1", "issues", BODY)


async def test_the_same_again_is_answered_the_same_way_and_stored_once(endpoint: ReceiverClient) -> None:
    answers = [said(await endpoint.post(BODY, delivery=ident)) for ident in ("d-1", "d-1", "d-2")]
    assert answers == [(202, "stored"), (202, "duplicate"), (202, "duplicate")]
    assert len(endpoint.stored()) == 1


async def test_a_hundred_at_once_are_one(endpoint: ReceiverClient) -> None:
    answers = await asyncio.gather(*(endpoint.post(BODY, delivery=f"d-{number % 2}") for number in range(100)))
    assert {answer.status_code for answer in answers} == {202}
    assert [said(answer)[1] for answer in answers].count("stored") == 1
    assert len(endpoint.stored()) == 1


async def test_posts_wait_while_another_writer_holds_the_database_and_none_is_answered_before_it_is_stored(
    endpoint: ReceiverClient,
) -> None:
    bodies = {f"d-{number}": made.encode(made.label_added(f"label {number}")) for number in range(100)}
    with endpoint.inbox.engine.connect() as other:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        posts = [asyncio.create_task(endpoint.post(body, delivery=ident)) for ident, body in bodies.items()]
        done, _ = await asyncio.wait(posts, timeout=0.5)
        assert not done
        assert (await endpoint.client.get("/healthz")).status_code == 200
        other.rollback()
    answers = await asyncio.gather(*posts)
    assert [said(answer) for answer in answers] == [(202, "stored")] * len(bodies)
    assert {found.id: found.body for found in endpoint.stored()} == bodies


async def test_an_id_repeated_with_another_body_is_refused_and_the_first_stays(
    endpoint: ReceiverClient,
) -> None:
    other = made.encode(made.label_added("other"))
    assert said(await endpoint.post(BODY)) == (202, "stored")
    assert said(await endpoint.post(other)) == (409, "conflict")
    assert [found.body for found in endpoint.stored()] == [BODY]


@pytest.mark.parametrize(
    ("event", "payload", "answer"),
    [
        ("ping", {"zen": "Keep it logically awesome."}, "ping"),
        ("star", made.payload("created"), "ignored_unknown_event"),
        ("issues", made.payload("opened", issue=made.issue()), "ignored_unknown_action"),
        ("issues", made.label_added(sender=None), "ignored_no_sender"),
        ("issues", {**made.label_added(), "installation": None}, "ignored_no_installation"),
        ("issue_comment", {**made.comment("/agent fix"), "action": "edited"}, "ignored_edited"),
    ],
)
async def test_unknown_events_are_counted_and_dropped(
    endpoint: ReceiverClient, event: str, payload: dict[str, object], answer: str
) -> None:
    for _ in range(2):
        assert said(await endpoint.post(made.encode(payload), event=event)) == (202, answer)
    assert endpoint.app.state.counts == {answer: 2}
    assert endpoint.untouched


async def test_two_secrets_are_right_while_they_are_being_changed(tmp_path: Path) -> None:
    async with receiver_client(tmp_path, secrets=("new", "old")) as endpoint:
        for number, (secret, status) in enumerate([("new", 202), ("old", 202), ("older", 401), ("new,old", 401)]):
            body = made.encode(made.label_added(f"label {number}"))
            answer = await endpoint.post(body, delivery=f"d-{number}", x_hub_signature_256=made.sign(body, secret))
            assert answer.status_code == status


async def test_a_delivery_that_cannot_be_stored_is_refused(tmp_path: Path) -> None:
    """Nothing was seen until it is committed: the redelivery under the same id is stored."""
    async with receiver_client(tmp_path, disk=FullDisk) as endpoint:
        inbox = FullDisk(endpoint.inbox)
        app = receiver([made.SECRET], inbox, endpoint.clock)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://receiver.invalid") as client:
            answer = await client.post("/webhook", content=BODY, headers=made.headers(BODY))
            assert said(answer) == (503, "not_stored")
            assert answer.headers["retry-after"] == "30"
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/healthz")).status_code == 200
            inbox.full = False
            assert said(await client.post("/webhook", content=BODY, headers=made.headers(BODY))) == (202, "stored")
        assert [found.id for found in endpoint.stored()] == ["d-1"]


async def test_a_form_is_read_when_it_was_signed_as_it_came(endpoint: ReceiverClient) -> None:
    form = b"payload=" + quote_plus(BODY).encode()
    kind = "application/x-www-form-urlencoded"
    assert said(await endpoint.post(form, content_type=kind)) == (202, "stored")
    assert endpoint.stored()[0].body == BODY
    unsigned = await endpoint.post(form, content_type=kind, x_hub_signature_256=made.sign(BODY))
    assert said(unsigned) == (415, "unsigned_form")


async def test_a_form_and_its_json_are_the_same_delivery(endpoint: ReceiverClient) -> None:
    form = b"payload=" + quote_plus(BODY).encode()
    assert said(await endpoint.post(BODY)) == (202, "stored")
    again = await endpoint.post(form, delivery="d-2", content_type="application/x-www-form-urlencoded")
    assert said(again) == (202, "duplicate")


async def test_readiness_shows_what_waits_and_for_how_long(endpoint: ReceiverClient) -> None:
    assert (await endpoint.client.get("/readyz")).json() == {
        "status": "ready",
        "database": "writable",
        "undone": 0,
        "oldest_undone_seconds": 0.0,
        "given_up": 0,
    }
    await endpoint.post(BODY)
    endpoint.clock.passes(timedelta(minutes=1))
    answer = await endpoint.client.get("/readyz")
    assert (answer.status_code, answer.json()["undone"], answer.json()["oldest_undone_seconds"]) == (200, 1, 60.0)
    endpoint.clock.passes(LATE)
    answer = await endpoint.client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "late")


async def test_readiness_asks_the_database_once_a_second_at_most(tmp_path: Path) -> None:
    async with receiver_client(tmp_path) as endpoint:
        disk = FullDisk(endpoint.inbox)
        app = receiver([made.SECRET], disk, endpoint.clock)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://receiver.invalid") as client:
            assert (await client.get("/readyz")).status_code == 503
            disk.full = False
            assert (await client.get("/readyz")).status_code == 503
            endpoint.clock.passes(timedelta(seconds=1))
            assert (await client.get("/readyz")).status_code == 200


async def test_the_published_payloads_are_all_accepted_and_start_nothing(endpoint: ReceiverClient) -> None:
    answers = []
    for number, (event, payload) in enumerate(published()):
        body = made.encode({"installation": {"id": 1}, **payload})
        answers.append((await endpoint.post(body, event=event, delivery=f"d-{number}")).status_code)
    assert answers == [202] * COUNT
    counts = endpoint.app.state.counts
    assert counts["stored"] + counts["duplicate"] == 49
    assert counts["ignored_malformed"] == 0


@pytest.mark.parametrize("path", ["/docs", "/openapi.json", "/webhook/", "/", "/metrics"])
async def test_nothing_else_is_served(endpoint: ReceiverClient, path: str) -> None:
    assert (await endpoint.client.get(path)).status_code == 404


async def test_a_webhook_is_posted(endpoint: ReceiverClient) -> None:
    assert (await endpoint.client.get("/webhook")).status_code == 405


def serve(place: Path) -> tuple[subprocess.Popen[bytes], int]:
    """The receiver in a process of its own, and its port: the socket listens before the process is there."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number = listening.fileno()
        command = [sys.executable, "-I", "-m", "app", "serve", "--role", "receiver", "--listening", str(number)]
        ours = {"AGENT_FIX_WEBHOOK_SECRET": made.SECRET, "AGENT_FIX_STATE_DIR": str(place)}
        process = subprocess.Popen(command, pass_fds=[number], env={"PATH": os.environ["PATH"], **ours}, cwd=place)
        return process, listening.getsockname()[1]


def test_the_receiver_holds_no_library_that_is_not_its_own() -> None:
    module = "app.server.receiver"
    check = f"import sys, {module}; print(*sorted(sys.modules))"
    loaded = subprocess.run(
        [sys.executable, "-I", "-c", check], capture_output=True, text=True, check=True
    ).stdout.split()
    assert module in loaded
    assert not {"litellm", "openai", "dbos", "githubkit", "git", "jwt", "httpx", "e2b", "tree_sitter"} & set(loaded)


def test_an_acknowledged_delivery_survives_a_kill_of_the_receiver(tmp_path: Path) -> None:
    """Over a real socket: acknowledge, kill -9 in the middle of a burst, look; then serve again and redeliver."""
    bodies = {f"d-{number}": made.encode(made.label_added(f"label {number}")) for number in range(60)}
    acknowledged = asyncio.run(burst(tmp_path, bodies, kill_after=20))
    assert 20 <= len(acknowledged) < len(bodies)
    assert acknowledged <= set(kept(tmp_path))
    assert asyncio.run(burst(tmp_path, bodies)) == set(bodies)
    assert kept(tmp_path) == bodies


def kept(place: Path) -> dict[str, bytes]:
    """What stands in the database, by id."""
    engine = open_database("", place)
    with engine.connect() as db:
        rows = db.execute(sa.select(deliveries.c.id, deliveries.c.body)).all()
    engine.dispose()
    assert len(rows) == len({ident for ident, _ in rows})
    return {ident: bytes(body) for ident, body in rows}


async def burst(place: Path, bodies: dict[str, bytes], kill_after: int | None = None) -> set[str]:
    """The ids that got a 202 before the end, or before the server was killed."""
    process, number = serve(place)
    acknowledged: set[str] = set()
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{number}", timeout=60) as client:
            for ident, body in bodies.items():
                try:
                    answer = await client.post("/webhook", content=body, headers=made.headers(body, delivery=ident))
                except httpx.TransportError:
                    break
                assert answer.status_code == 202
                acknowledged.add(ident)
                if len(acknowledged) == kill_after:
                    process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait(30)
    return acknowledged


async def test_a_real_server_cuts_a_stream_that_does_not_end(tmp_path: Path) -> None:
    process, number = serve(tmp_path)
    try:

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(40):
                yield bytes(1024 * 1024)

        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{number}", timeout=60) as client:
            try:
                answer = await client.post("/webhook", content=endless(), headers=made.headers(b""))
                assert answer.status_code == 413
            except httpx.WriteError:  # it hung up while we were still sending
                pass
            bomb = gzip.compress(bytes(30 * 1024 * 1024))
            refused = await client.post("/webhook", content=bomb, headers=made.headers(bomb, content_encoding="gzip"))
            assert refused.status_code == 400
            assert (await client.get("/readyz")).json()["undone"] == 0
    finally:
        process.terminate()
        assert process.wait(30) == 0
