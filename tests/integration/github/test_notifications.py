"""Jobs that end or wait are announced outside GitHub, at least once; third-party libraries check the requests."""

import json
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from app.config.settings import VariableReader
from app.core.errors import AgentFixError
from app.core.redaction import Redactor
from app.jobs.store import JobQueries
from app.llm.sql_ledger import SqlLedger
from app.publish.effects import Channel
from app.publish.notifications import Notifier
from app.publish.publisher import Publisher
from app.publish.secret_scan import HELD_BACK, SecretScan
from app.publish.status_updater import StatusUpdater
from tests.support.publisher_harness import PublisherHarness

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
"""The example of the Standard Webhooks specification."""


class Receiver:
    """Answers with these status codes, then with 204."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        return httpx.Response(self.codes.pop(0) if self.codes else 204)


def notifier(harness: PublisherHarness, answer: Callable[[httpx.Request], httpx.Response], *secrets: str,
             urls: tuple[str, ...] = ()) -> Notifier:  # fmt: skip
    reading = VariableReader({"KEY": SECRET})
    key = reading.signing_key("KEY", needed_by="URL")
    assert not reading.problems
    scan, transport = SecretScan(Redactor(secrets)), httpx.MockTransport(answer)
    url = "https://hooks.example/agent-fix"
    return Notifier(scan, harness.now, webhook_url=url, key=key, urls=urls, transport=transport)


async def told(harness: PublisherHarness, by: Notifier, channel: Channel = "webhook") -> None:
    """Post the states, and carry out everything that is due."""
    queries = JobQueries(harness.engine, harness.now)
    ledger = lambda job: SqlLedger(harness.engine, job, 0)  # noqa: E731
    updater = StatusUpdater(
        harness.store,
        queries,
        harness.outbox,
        ledger,
        harness.now,
        public_url="https://bot.example",
        channels=[channel],
    )
    await updater.post_due()
    await attempts(harness, by)


async def attempts(harness: PublisherHarness, by: Notifier) -> None:
    publisher = Publisher(harness.outbox, harness.open, harness.policy.check, "p1", by)
    while await publisher.publish_next() is not None:
        pass


def verified(request: httpx.Request) -> Any:
    return Webhook(SECRET).verify(request.content, dict(request.headers))


async def test_an_end_is_posted_and_signed_as_standard_webhooks(harness: PublisherHarness) -> None:
    made, receiver = await harness.admit(), Receiver()
    by = notifier(harness, receiver)
    await told(harness, by)
    assert receiver.requests == [], "being queued is no news"
    harness.store.finish(made.id, "no_change", "There was nothing to do.", {"exit_status": "no_change"})
    # Its own clock decides whether a signature is too old.
    harness.fake_github.world.now = harness.fake_github.world.now.__class__.now(harness.fake_github.world.now.tzinfo)
    await told(harness, by)
    (request,) = receiver.requests
    found = verified(request)
    assert found["type"] == "job.no_change"
    assert found["data"]["job"] == made.id
    assert found["data"]["repository"] == "ada/sample"
    assert found["data"]["page"] == f"https://bot.example/jobs/{made.id}"
    assert found["data"]["body"].endswith("There was nothing to do.")
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(request.content + b" ", dict(request.headers))


async def test_delivery_is_repeated_with_the_same_id_until_it_is_taken(harness: PublisherHarness) -> None:
    made, receiver = await harness.admit(), Receiver(500, 301)
    by = notifier(harness, receiver)
    harness.store.finish(made.id, "no_change", "", {"exit_status": "no_change"})
    await told(harness, by)
    for _ in range(5):
        harness.fake_github.world.tick(300)
        await attempts(harness, by)
    assert len(receiver.requests) == 3
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


async def test_a_receiver_that_is_gone_is_asked_no_more(harness: PublisherHarness) -> None:
    made, receiver = await harness.admit(), Receiver(410)
    harness.store.finish(made.id, "no_change", "", {"exit_status": "no_change"})
    by = notifier(harness, receiver)
    await told(harness, by)
    harness.fake_github.world.tick(3_600)
    await attempts(harness, by)
    assert len(receiver.requests) == 1


async def test_our_own_secrets_are_held_back(harness: PublisherHarness) -> None:
    made, receiver = await harness.admit(), Receiver()
    harness.store.finish(made.id, "no_change", "the key is k3y-0f-the-0perat0r", {"exit_status": "no_change"})
    await told(harness, notifier(harness, receiver, "k3y-0f-the-0perat0r"))
    (request,) = receiver.requests
    assert b"k3y-0f" not in request.content
    assert json.loads(request.content)["data"]["body"] == HELD_BACK


async def test_secret_in_any_field_of_a_notification_is_held_back(harness: PublisherHarness) -> None:
    made, receiver = await harness.admit(), Receiver()
    harness.store.finish(made.id, "no_change", "", {"exit_status": "no_change"})
    await told(harness, notifier(harness, receiver, "ada/sample"))
    (request,) = receiver.requests
    assert b"ada/sample" not in request.content


async def test_body_of_a_receivers_answer_is_not_read(harness: PublisherHarness) -> None:
    made = await harness.admit()
    harness.store.finish(made.id, "no_change", "", {"exit_status": "no_change"})
    read: list[bytes] = []

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(100):
            read.append(b"x" * 1_000)
            yield read[-1]

    await told(harness, notifier(harness, lambda _: httpx.Response(200, content=endless())))
    assert not read


@pytest.fixture
def received() -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """A real receiver's host and port, and the headers and body of each request that it got."""
    found: list[tuple[dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found.append((dict(self.headers), self.rfile.read(int(self.headers["content-length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"127.0.0.1:{server.server_port}", found
    server.shutdown()
    server.server_close()
    thread.join()


async def test_a_real_receiver_gets_a_webhook_whose_signature_it_can_verify(
    harness: PublisherHarness, received: tuple[str, list[tuple[dict[str, str], bytes]]]
) -> None:
    host, found = received
    made = await harness.admit()
    harness.store.finish(made.id, "pr_opened", "It is proved.", {"exit_status": "pr_opened"})
    reading = VariableReader({"KEY": SECRET})
    key = reading.signing_key("KEY", needed_by="URL")
    by = Notifier(SecretScan(Redactor(())), lambda: datetime.now(UTC), webhook_url=f"http://{host}/hook", key=key)
    await told(harness, by)
    ((headers, body),) = found
    assert Webhook(SECRET).verify(body, headers)["data"]["job"] == made.id
    other = "whsec_" + b64encode(b"another key of 24 bytes!").decode()
    for key_used, text in ((other, body), (SECRET, body.replace(b"pr_opened", b"no_change"))):
        with pytest.raises(WebhookVerificationError):
            Webhook(key_used).verify(text, headers)


def messages(found: list[tuple[dict[str, str], bytes]]) -> list[Any]:
    return [json.loads(body) for _, body in found]


async def test_apprise_delivers_in_plain_words(
    harness: PublisherHarness, received: tuple[str, list[tuple[dict[str, str], bytes]]]
) -> None:
    host, found = received
    made = await harness.admit()
    harness.store.enter(made.id, "paused", "The budget of $5.00 is spent.", waiting_for="money")
    await told(harness, notifier(harness, Receiver(), urls=(f"json://{host}/",)), "apprise")
    assert [each["title"] for each in messages(found)] == ["⏸️ Paused: ada/sample#1"]
    assert "The budget of $5.00 is spent." in messages(found)[0]["message"]


async def test_a_notification_mentions_nobody(
    harness: PublisherHarness, received: tuple[str, list[tuple[dict[str, str], bytes]]]
) -> None:
    host, found = received
    made = await harness.admit()
    harness.store.enter(made.id, "paused", "Ask @everyone and <@42>.", waiting_for="money")
    await told(harness, notifier(harness, Receiver(), urls=(f"json://{host}/",)), "apprise")
    assert "@everyone" not in messages(found)[0]["message"]
    assert "<@42>" not in messages(found)[0]["message"]


def test_address_that_apprise_cannot_use_is_refused_at_the_start(harness: PublisherHarness) -> None:
    with pytest.raises(AgentFixError, match="address 2 of AGENT_FIX_NOTIFY"):
        notifier(harness, Receiver(), urls=("json://127.0.0.1/", "slcak://a/b/c"))


@pytest.mark.parametrize("value", ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_!!"])
def test_a_bad_signing_key_is_refused(value: str) -> None:
    reading = VariableReader({"KEY": value, "URL": "https://x.example"})
    assert reading.signing_key("KEY", needed_by="URL") == b""
    assert [problem.name for problem in reading.problems] == ["KEY"]
