"""Cases in which the endpoint or the way to it fails: statuses, limits, cut and garbled streams, keys and money."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from app.llm.circuit_breaker import MAX_ATTEMPTS, WAITS
from tests.support.always_ends.answers import GOOD, POSITIONS, ever, once, with_usage, without_usage
from tests.support.always_ends.case_runner import Case
from tests.support.always_ends.endpoint import always, first, in_turn
from tests.support.openai_endpoint import Reply, answer, cut, error

WHOLE = answer(
    "I submit.", tools=[("c0", "submit", '{"summary": "fixed", "reproduction": "grep -q + app.py"}')], piece=25
)
TRANSIENT: dict[str, tuple[Reply, str]] = {
    "500": (error(500, "oops"), "server_error"),
    "502 with a page": (
        Reply(status=502, body=b"<html>bad gateway</html>", headers={"content-type": "text/html"}),
        "server_error",
    ),
    "529": (error(529, "Overloaded"), "server_error"),
    "408": (error(408, "Request timeout"), "timeout"),
    "a connection that is hung up": (Reply(hang_up=True), "connection_lost"),
    "a page instead of an answer": (
        Reply(body=b"<html>login</html>", headers={"content-type": "text/html"}),
        "bad_response",
    ),
    "an empty body": (Reply(body=b""), "bad_response"),
    "malformed JSON": (Reply(body=b'{"choices": [{"delta": '), "bad_response"),
    "a malformed event": (Reply(events=(WHOLE.events[0], '{"broken')), "stream_cut"),
    "an error in the stream": (Reply(events=(WHOLE.events[0], {"error": {"message": "overloaded"}})), "stream_cut"),
    "a stream without events": (Reply(events=("[DONE]",)), "bad_response"),
}
LIMITED: dict[str, Reply] = {
    "429": error(429, "slow down"),
    "429 with Retry-After": error(429, "slow down", headers={"retry-after": "2"}),
    "429 with Retry-After 0": error(429, "slow down", headers={"retry-after": "0"}),
    "429 with a negative Retry-After": error(429, "slow down", headers={"retry-after": "-7"}),
    "429 with a Retry-After of words": error(429, "slow down", headers={"retry-after": "soon"}),
    "429 with a Retry-After of 1e309": error(429, "slow down", headers={"retry-after": "1e309"}),
    "429 with a date that is past": error(429, "slow", headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}),
    "503 with Retry-After": error(503, "overloaded", headers={"retry-after": "3"}),
}
IMPATIENT: dict[str, Reply] = {
    "429 for a day": error(429, "slow down", headers={"retry-after": "86400"}),
    "429 for thirty years": error(429, "slow down", headers={"retry-after": "999999999"}),
    "429 until 2099": error(429, "slow down", headers={"retry-after": "Wed, 21 Oct 2099 07:28:00 GMT"}),
}
FINAL: dict[str, tuple[Reply, str]] = {
    "401": (error(401, "Incorrect API key provided"), "bad_key"),
    "402": (error(402, "Insufficient Balance"), "quota"),
    "403": (error(403, "no access to this model"), "bad_key"),
    "404": (error(404, "The model `local` does not exist", code="model_not_found"), "unknown_model"),
    "400": (error(400, "messages.3: bad role"), "bad_request"),
    "a spent account": (error(429, "You exceeded your current quota", code="insufficient_quota"), "quota"),
    "a refusal of the content": (error(400, "violates our usage policy", code="content_policy"), "refused"),
    "no tools": (error(400, "local does not support tools"), "no_tools"),
}


def _shaped(**choice: Any) -> Reply:
    """A stream whose only choice has odd fields."""
    head = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return Reply(events=({**head, "choices": [{"index": 0, "finish_reason": None, **choice}]}, "[DONE]"))


ODD: dict[str, Reply] = {
    "choices that are none": Reply(events=({"id": "1", "choices": None}, "[DONE]")),
    "choices that are words": Reply(events=({"id": "1", "choices": "x"}, "[DONE]")),
    "no choices": Reply(events=({"id": "1", "choices": []}, "[DONE]")),
    "a delta that is none": _shaped(delta=None),
    "a delta that is a list": _shaped(delta=[1]),
    "content that is a number": _shaped(delta={"content": 7}),
    "calls that are words": _shaped(delta={"tool_calls": "bash"}),
    "a call without a function": _shaped(delta={"tool_calls": [{"index": 0, "id": "a", "type": "function"}]}),
    "an answer that is a list": Reply(body=b"[1, 2]"),
    "an answer that is a number": Reply(body=b"7"),
    "an event of half a megabyte": Reply(events=("x" * 500_000, "[DONE]")),
    "bytes that are no text": Reply(body=bytes(range(256)) * 40),
}
USAGES: dict[str, dict[str, object]] = {
    "negative": {"prompt_tokens": -5, "completion_tokens": -5, "total_tokens": -10},
    "huge": {"prompt_tokens": 10**12, "completion_tokens": 0, "total_tokens": 10**12},
    "beyond every integer": {"prompt_tokens": 10**30, "completion_tokens": 1, "total_tokens": 10**30},
    "zero": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "more cached than sent": {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 10**9}},
    "without details": {"prompt_tokens_details": None},
}


def cases() -> Iterator[Case]:
    yield from _transient()
    yield from _limited()
    yield from _cut()
    yield from _odd()
    yield from _usages()
    for name, (reply, reason) in FINAL.items():
        for where, position in list(POSITIONS.items())[1:4]:
            yield Case(f"{name} {where}", ever(position, always(reply)), reason, position + 1)


def _transient() -> Iterator[Case]:
    for number, (name, (reply, reason)) in enumerate(TRANSIENT.items()):
        where, position = list(POSITIONS.items())[number % len(POSITIONS)]
        yield Case(f"{name}, once, {where}", once(position, reply), "submitted", 6)
        if number % 2:
            yield Case(f"{name}, four times, {where}", once(position, *[reply] * (MAX_ATTEMPTS - 1)), "submitted", 9)
        yield Case(f"{name}, for ever, {where}", ever(position, always(reply)), reason, position + MAX_ATTEMPTS)
    alternating = [reply for good in GOOD for reply in (error(500, "oops"), good)]
    yield Case("500 before every answer", first(alternating, always(error(599, "over"))), "submitted", 10)
    kinds = in_turn(*(reply for reply, _ in TRANSIENT.values()))
    yield Case("every failure in turn, for ever", ever(1, kinds), "connection_lost", 1 + MAX_ATTEMPTS)
    mixed = in_turn(error(500, "oops"), error(429, "slow down"))
    yield Case("500 and 429 in turn, for ever", ever(1, mixed), "server_error", 2 + 2 * MAX_ATTEMPTS)
    down = first([error(500, "oops")] * MAX_ATTEMPTS, first(GOOD, always(error(599, "over"))))
    yield Case("a dead model with a fallback", down, "submitted", MAX_ATTEMPTS + 5, fallbacks=1)
    dead = always(error(500, "oops"))
    yield Case("two dead models", ever(2, dead), "server_error", 2 + 2 * MAX_ATTEMPTS, fallbacks=1)
    yield Case("three dead models", ever(0, dead), "server_error", 3 * MAX_ATTEMPTS, fallbacks=2)
    wrong = ever(1, always(FINAL["404"][0]))
    yield Case("a wrong name with a fallback", wrong, "unknown_model", 2, fallbacks=1)


def _limited() -> Iterator[Case]:
    for number, (name, reply) in enumerate(LIMITED.items()):
        where, position = list(POSITIONS.items())[number % len(POSITIONS)]
        reason = "overloaded" if reply.status == 503 else "rate_limited"
        yield Case(f"{name}, once, {where}", once(position, reply), "submitted", 6)
        yield Case(f"{name}, for ever, {where}", ever(position, always(reply)), reason, position + 1 + WAITS)
    for name, reply in IMPATIENT.items():
        yield Case(f"{name}", ever(1, always(reply)), "rate_limited", 2)


def _cut() -> Iterator[Case]:
    for after in range(len(WHOLE.events) - 2):
        yield Case(f"a stream cut after {after} events, once", once(2, cut(WHOLE, after)), "submitted", 6)
        reason = "stream_cut|connection_lost|bad_response"
        yield Case(
            f"a stream cut after {after} events, for ever", ever(2, always(cut(WHOLE, after))), reason, 2 + MAX_ATTEMPTS
        )
    short = replace(WHOLE, events=(*WHOLE.events[:3], "[DONE]"))
    yield Case("a stream that ends politely but early, once", once(1, short), "submitted", 6)
    yield Case(
        "a stream that ends politely but early, for ever",
        ever(1, always(short)),
        "stream_cut|bad_response",
        1 + MAX_ATTEMPTS,
    )


def _odd() -> Iterator[Case]:
    """What no provider should send. A retry may mend it; where it never ends, the sentence says whose fault it is."""
    for number, (name, reply) in enumerate(ODD.items()):
        position = number % 4
        yield Case(f"{name}, once", once(position, reply), "submitted", 7)
        reason = "stream_cut|bad_response|server_error|error"
        yield Case(f"{name}, for ever", ever(position, always(reply)), reason, position + MAX_ATTEMPTS + 1)


def _usages() -> Iterator[Case]:
    for name, usage in USAGES.items():
        played = [with_usage(reply, **usage) for reply in GOOD]
        ends = "budget" if name in {"huge", "beyond every integer"} else "submitted"
        yield Case(f"usage that is {name}", first(played, always(error(599, "over"))), ends, 5)
        if ends == "budget":
            unpriced = first(played, always(error(599, "over")))
            yield Case(f"usage that is {name}, of a model without a price", unpriced, "submitted", 5, price=None)
    played = [without_usage(reply) for reply in GOOD]
    yield Case("no usage at all", first(played, always(error(599, "over"))), "submitted", 5)
    words = [with_usage(reply, prompt_tokens=json.dumps("many")) for reply in GOOD]
    yield Case(
        "usage that is words", first(words, always(words[0])), "submitted|stream_cut|bad_response", 5 + MAX_ATTEMPTS
    )
