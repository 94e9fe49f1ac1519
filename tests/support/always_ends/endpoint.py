"""The endpoint of the always-ends suite: one server for all cases, each of which says what is answered to what."""

from collections.abc import Callable, Iterable
from typing import Any

from tests.support.openai_endpoint import OpenAIEndpoint, ReceivedRequest, Reply

Play = Callable[[int, dict[str, Any]], Reply]
"""What the request with this number, counted from 0, is answered, given its body."""


class CaseEndpoint(OpenAIEndpoint):
    """Answers as `play` says, for as long as it is asked: `bodies`, or `raw`, were asked, `replies` answered."""

    def __init__(self) -> None:
        super().__init__()
        self._play: Play = lambda _number, _body: Reply(hang_up=True)
        self.bodies: list[dict[str, Any]] = []
        self.replies: list[Reply] = []
        self.raw: list[bytes] = []

    def plays(self, play: Play) -> None:
        self._play = play
        self.bodies, self.replies, self.raw = [], [], []

    def take(self, received: ReceivedRequest) -> Reply:
        reply = self._play(len(self.bodies), received.body)
        self.bodies.append(received.body)
        self.replies.append(reply)
        self.raw.append(received.raw)
        return reply


def first(replies: Iterable[Reply], then: Play) -> Play:
    """These one after the other, and then what `then` says, which counts from 0 again."""
    before = tuple(replies)
    return lambda number, body: before[number] if number < len(before) else then(number - len(before), body)


def always(reply: Reply) -> Play:
    return lambda _number, _body: reply


def in_turn(*replies: Reply) -> Play:
    """These again and again."""
    return lambda number, _body: replies[number % len(replies)]
