"""Thirty-odd ways to misuse the webhook, each with the answer it gets; whatever was refused left nothing behind."""

import asyncio
import gzip
import hashlib
import hmac
import json
import tracemalloc
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.types import Message

from app.jobs.inbox import BatchWriter, Delivery
from app.server.receiver import MAX_BYTES, WebhookEndpoint
from app.triggers.decisions import Ignored, JobRequest
from app.triggers.events import read
from app.triggers.rules import PER_HOUR, decide
from tests.support import webhook_requests as made
from tests.support.receiver_client import ReceiverClient, receiver_client
from tests.support.rule_decisions import NOW, facts_of, state

PAYLOAD = made.label_added()
BODY = made.encode(PAYLOAD)
RIGHT = made.sign(BODY)
SHA1 = "sha1=" + hmac.new(made.SECRET.encode(), BODY, hashlib.sha1).hexdigest()
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[ReceiverClient]:
    async with receiver_client(tmp_path) as ready:
        yield ready


REFUSED: dict[str, tuple[int, bytes, dict[str, str | None]]] = {
    "no signature": (401, BODY, {"x_hub_signature_256": None}),
    "an empty signature": (401, BODY, {"x_hub_signature_256": ""}),
    "sha1 only": (401, BODY, {"x_hub_signature_256": None, "x_hub_signature": SHA1}),
    "sha1 in the place of sha256": (401, BODY, {"x_hub_signature_256": SHA1}),
    "a bare digest": (401, BODY, {"x_hub_signature_256": RIGHT.removeprefix("sha256=")}),
    "a digest in capitals": (401, BODY, {"x_hub_signature_256": "sha256=" + RIGHT[7:].upper()}),
    "a digest cut short": (401, BODY, {"x_hub_signature_256": RIGHT[:-1]}),
    "a digest and more": (401, BODY, {"x_hub_signature_256": RIGHT + "00"}),
    "two digests": (401, BODY, {"x_hub_signature_256": f"{RIGHT}, {RIGHT}"}),
    "an unkeyed digest": (401, BODY, {"x_hub_signature_256": "sha256=" + hashlib.sha256(BODY).hexdigest()}),
    "signed with nothing": (401, BODY, {"x_hub_signature_256": made.sign(BODY, "")}),
    "signed with another secret": (401, BODY, {"x_hub_signature_256": made.sign(BODY, "guess")}),
    "a newline after the body": (401, BODY + b"\n", {"x_hub_signature_256": RIGHT}),
    "a byte changed": (401, BODY.replace(b"agent-fix", b"agent-fiy"), {"x_hub_signature_256": RIGHT}),
    "no body": (401, b"", {"x_hub_signature_256": RIGHT}),
    "the same JSON written otherwise": (401, json.dumps(PAYLOAD, indent=1).encode(), {"x_hub_signature_256": RIGHT}),
    "a signature over the sorted JSON": (
        401,
        BODY,
        {"x_hub_signature_256": made.sign(json.dumps(PAYLOAD, sort_keys=True).encode())},
    ),
    "gzip": (400, gzip.compress(BODY), {"content_encoding": "gzip"}),
    "deflate": (400, zlib.compress(BODY), {"content_encoding": "deflate"}),
    "two encodings": (400, BODY, {"content_encoding": "identity, gzip"}),
    "a gzip bomb": (400, gzip.compress(bytes(MAX_BYTES + 1)), {"content_encoding": "gzip"}),
    "a form that was signed as JSON": (415, b"payload=%7B%7D", {"content_type": FORM, "x_hub_signature_256": RIGHT}),
    "a form with another field": (400, b"x=%7B%7D", {"content_type": FORM}),
    "a form with two payloads": (400, b"payload=%7B%7D&payload=%7B%7D", {"content_type": FORM}),
    "a form of no JSON": (400, b"payload=x", {"content_type": FORM}),
    "a form of other bytes": (400, b"payload=\xff", {"content_type": FORM}),
    "plain text": (415, BODY, {"content_type": "text/plain"}),
    "no content type": (415, BODY, {"content_type": None}),
    "a multipart form": (415, BODY, {"content_type": "multipart/form-data; boundary=x"}),
    "no JSON": (400, b"{", {}),
    "JSON that is no object": (400, b"[]", {}),
    "JSON a hundred thousand deep": (400, b'{"a":' * 100_000, {}),
    "JSON in UTF-16": (400, json.dumps(PAYLOAD).encode("utf-16"), {}),
    "no event": (400, BODY, {"x_github_event": None}),
    "an event that is a path": (400, BODY, {"x_github_event": "../../issues"}),
    "an event of ten thousand letters": (400, BODY, {"x_github_event": "a" * 10_000}),
    "no delivery id": (400, BODY, {"x_github_delivery": None}),
    "a delivery id with a quote": (400, BODY, {"x_github_delivery": "x'; DROP TABLE deliveries;--"}),
    "a delivery id that is too long": (400, BODY, {"x_github_delivery": "a" * 65}),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_refused(endpoint: ReceiverClient, case: str) -> None:
    status, body, headers = REFUSED[case]
    names = {"x_github_event": "event", "x_github_delivery": "delivery"}
    changes = {name: value for name, value in headers.items() if name not in names}
    made_headers = made.headers(body, "issues", "d-1", **changes)
    for name in names.keys() & headers.keys():
        made_headers.pop(name.replace("_", "-"))
        if (value := headers[name]) is not None:
            made_headers[name.replace("_", "-")] = value
    answer = await endpoint.client.post("/webhook", content=body, headers=made_headers)
    assert answer.status_code == status, answer.text
    assert endpoint.untouched
    assert made.SECRET not in answer.text
    again = await endpoint.post(BODY)  # and the right one is still welcome
    assert (again.status_code, again.json()) == (202, {"status": "stored"})


async def test_two_signature_headers(endpoint: ReceiverClient) -> None:
    twice = [*made.headers(BODY).items(), ("x-hub-signature-256", "sha256=" + "0" * 64)]
    assert (await endpoint.client.post("/webhook", content=BODY, headers=twice)).status_code == 401
    assert endpoint.untouched


async def test_a_length_above_the_cap_is_refused_before_a_byte_is_read(endpoint: ReceiverClient) -> None:
    read_bytes = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal read_bytes
        read_bytes += 1
        yield b"x"

    headers = {**made.headers(b""), "content-length": str(MAX_BYTES + 1)}
    answer = await endpoint.client.post("/webhook", content=body(), headers=headers)
    assert (answer.status_code, answer.json()) == (413, {"status": "too_large"})
    assert read_bytes == 0


@pytest.mark.parametrize("length", ["9" * 5_000, "-1", "1e9", "\u0665"])
async def test_a_false_content_length_is_not_trusted(endpoint: ReceiverClient, length: str) -> None:
    headers = [*made.headers(BODY).items(), ("content-length", length)]
    raw = [(name.encode(), value.encode()) for name, value in headers]
    answer = await endpoint.client.post("/webhook", content=BODY, headers=raw)
    assert answer.status_code in {202, 413}
    assert answer.status_code == 413 or len(endpoint.stored()) == 1


async def test_a_stream_without_end_is_cut_at_the_cap_with_little_memory(endpoint: ReceiverClient) -> None:
    chunk, sent = bytes(256 * 1024), 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 4 * MAX_BYTES:
            sent += len(chunk)
            yield chunk

    tracemalloc.start()
    try:
        answer = await endpoint.client.post("/webhook", content=endless(), headers=made.headers(b""))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (answer.status_code, answer.json()) == (413, {"status": "too_large"})
    assert sent <= MAX_BYTES + 2 * len(chunk)
    assert peak < 64 * 1024 * 1024
    assert endpoint.untouched


async def test_a_body_at_the_cap_is_accepted(endpoint: ReceiverClient) -> None:
    body = BODY[:-1] + b" " * (MAX_BYTES - len(BODY)) + BODY[-1:]
    assert len(body) == MAX_BYTES
    assert (await endpoint.post(body)).status_code == 202
    assert (await endpoint.post(body + b" ")).status_code == 413


async def test_a_replay_under_a_new_id_or_event_is_the_same_delivery(endpoint: ReceiverClient) -> None:
    answers = [
        (await endpoint.post(BODY, delivery=f"d-{number}", event=event)).json()["status"]
        for number, event in enumerate(["issues", "issues", "pull_request"])
    ]
    assert answers == ["stored", "duplicate", "duplicate"]
    assert [found.event for found in endpoint.stored()] == ["issues"]


def test_a_body_with_a_wrong_event_name_starts_nothing() -> None:
    """The event's header is outside the signature: what it claims must fit the body."""
    events = ["issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment", "push"]
    bodies: dict[str, dict[str, Any]] = {
        "issues": made.label_added(),
        "issue_comment": {**made.comment("/agent fix"), "action": "edited"},
        "pull_request_review_comment": {**made.review_comment("/agent fix"), "action": "edited"},
    }
    for real, payload in bodies.items():
        for claimed in events:
            event = read(claimed, payload)
            if isinstance(event, str):
                continue
            decision = decide(facts_of(event), now=NOW)
            assert not isinstance(decision, JobRequest) or (claimed, real) in {
                ("issues", "issues"),
                ("pull_request", "issues"),
            }


def test_five_thousand_comments_are_bounded_and_answered_once() -> None:
    event = read("issue_comment", made.comment("/agent fix"))
    assert not isinstance(event, str)
    decisions = [decide(facts_of(event, state(recent_requests=count)), now=NOW) for count in range(5_000)]
    assert sum(isinstance(decision, JobRequest) for decision in decisions) == PER_HOUR
    told = sum(isinstance(decision, Ignored) and decision.visible for decision in decisions)
    assert told == 1


async def test_a_flood_of_bodies_that_do_not_end_is_turned_away(tmp_path: Path) -> None:
    """Many senders together may hold only so much memory, and what they held is free again when they are gone."""
    arrived, go_on = asyncio.Event(), asyncio.Event()

    def sending(*chunks: bytes, wait: bool = False) -> Request:
        waiting = list(chunks)

        async def receive() -> Message:
            if not waiting and wait:
                arrived.set()
                await go_on.wait()
            body = waiting.pop(0) if waiting else b""
            more = bool(waiting) or (wait and not go_on.is_set())
            return {"type": "http.request", "body": body, "more_body": more}

        raw = [(name.encode(), value.encode()) for name, value in made.headers(b"".join(chunks)).items()]
        return Request({"type": "http", "method": "POST", "headers": raw}, receive)

    async with receiver_client(tmp_path) as ready:
        endpoint = WebhookEndpoint([made.SECRET], BatchWriter(ready.inbox.store), most_at_once=len(BODY) + 10)
        slow = asyncio.create_task(endpoint.answer(sending(BODY, wait=True)))
        await arrived.wait()
        assert (await endpoint.answer(sending(bytes(11)))).status_code == 503
        go_on.set()
        assert (await slow).status_code == 202
        assert (await endpoint.answer(sending(BODY))).status_code == 202
        assert endpoint.counts == {"too_busy": 1, "stored": 1, "duplicate": 1}


async def test_secrets_and_bodies_stand_in_no_log(endpoint: ReceiverClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    await endpoint.post(BODY)
    await endpoint.post(made.encode(made.label_added("private words")))
    await endpoint.post(BODY, x_hub_signature_256=made.sign(BODY, "guess"))
    text = caplog.text
    assert "was repeated with another body" in text
    assert not [word for word in (made.SECRET, "private words", "Badly.", RIGHT, "guess") if word in text]


def test_the_stored_body_is_the_signed_body() -> None:
    assert Delivery("d", "issues", BODY).content == hashlib.sha256(BODY).hexdigest()
