"""Whatever an endpoint answers, a job ends: in a verdict or for one clear reason, soon, with nothing left behind."""

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.sandbox.base import Limits, Sandbox, Spec
from app.sandbox.bubblewrap import BubblewrapProvider
from tests.ends import behaviour, overflow, wire
from tests.ends.endpoint import Player
from tests.ends.stand import FILES, Case, Outcome, Stand, alive, tasks_left
from tests.fakes.sandboxes import filler, opened

CASES = {case.name: case for family in (wire, behaviour, overflow) for case in family.cases()}
OVERFLOW = re.compile("context_length|too large|too long|context size|maximum context")
WAITS_FOR_A_PROCESS = "asyncio-waitpid"
ENDED = frozenset({"submitted", "no_change", "limit_reached", "error"})


@pytest.fixture(scope="module")
def player() -> Iterator[Player]:
    with Player() as player:
        yield player


@pytest.fixture(scope="module")
def before(player: Player) -> tuple[frozenset[str], frozenset[int]]:
    return alive()


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("name", CASES)
async def test_it_ends(
    name: str, player: Player, before: tuple[frozenset[str], frozenset[int]], tmp_path: Path
) -> None:
    case = CASES[name]
    async with _sandbox(case, tmp_path) as sandbox:
        stand = Stand(case, player, tmp_path, sandbox)
        await _ends(stand, player)
    await _nothing_is_left(before)


@asynccontextmanager
async def _sandbox(case: Case, directory: Path) -> AsyncIterator[Sandbox | None]:
    """A real one for what leaves processes behind: the double has no walls."""
    if not case.boxed:
        yield None
        return
    provider = BubblewrapProvider(directory / "boxes", caches=directory / "caches")
    async with opened(provider, Spec("job", filler(FILES), limits=Limits(output=200_000))) as sandbox:
        yield sandbox


async def _ends(stand: Stand, player: Player) -> None:
    case = stand.case
    outcome = await stand.work()
    assert outcome.status in case.ends.split("|"), outcome
    assert case.says in outcome.sentence
    _is_a_sentence(outcome.sentence, model_wrote_it=outcome.status == "submitted")
    assert len(player.bodies) <= case.calls
    _wastes_little(player)
    _keeps_the_budget(stand)
    _is_consistent(stand, outcome)
    for body in player.bodies:
        _obeys_the_protocol(body["messages"])
    await _is_told_again(stand, outcome, player)


async def _nothing_is_left(before: tuple[frozenset[str], frozenset[int]]) -> None:
    """What the garbage collector has just begun to close may end."""
    if tasks := tasks_left():
        await asyncio.wait(tasks, timeout=10)
    assert not tasks_left()
    for thread in threading.enumerate():
        if thread.name.startswith(WAITS_FOR_A_PROCESS):  # which has ended: the thread is about to
            await asyncio.to_thread(thread.join, 10)
    threads, processes = alive()
    assert threads <= before[0]
    assert processes <= before[1]


def _is_a_sentence(text: str, *, model_wrote_it: bool) -> None:
    assert text
    assert len(text) < 700
    if not model_wrote_it:
        assert "\n" not in text
        assert "Traceback" not in text
        assert text[0].isupper() or text[0].isdigit() or text.startswith("openai/"), text
        assert text[-1] in ".…!}])>\"'" or re.search(r": .*\w$", text), text


def _wastes_little(player: Player) -> None:
    """After an overflow that nothing mended, at most three more calls."""
    bodies = [(reply.body or b"").decode("utf-8", "replace") for reply in player.replies]
    after = len(bodies)
    while after and OVERFLOW.search(bodies[after - 1]):
        after -= 1
    assert len(bodies) - after <= 1 + 3


def _keeps_the_budget(stand: Stand) -> None:
    """No call begins when the money is spent, none is left open, and no turn is beyond the last."""
    cap = stand.case.budget.usd
    assert stand.ledger.totals().pending == 0
    assert sum(spent >= cap for spent in stand.spent) <= 1
    acted = [name for name in stand.journal.kept if name.endswith(".act")]
    assert len(acted) <= stand.case.budget.steps


def _is_consistent(stand: Stand, outcome: Outcome) -> None:
    """What was stored is one answer and one act for each turn, in order, and nothing of turns that were not."""
    turns = [name.split(".")[1] for name in stand.journal.kept if name.endswith(".act")]
    assert turns == [str(number) for number in range(1, len(outcome.steps) + 1)]
    answered = {name.split(".")[1] for name in stand.journal.kept if name.endswith(".answer")}
    assert len(answered) - len(turns) in {0, 1}
    for step in outcome.steps:
        assert [call.id for call in step.turn.calls] == [seen.call_id for seen in step.turn.observations]


def _obeys_the_protocol(messages: list[dict[str, Any]]) -> None:
    """What providers insist on: each call answered at once and by its id, ids once a turn, no message without text."""
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
        else:
            assert not waiting
            waiting = [call["id"] for call in message.get("tool_calls") or ()]
            assert len(set(waiting)) == len(waiting)
        assert message.get("content") or message.get("tool_calls")
        for call in message.get("tool_calls") or ():
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert not waiting


async def _is_told_again(stand: Stand, outcome: Outcome, player: Player) -> None:
    """The next process of a job that has ended asks nobody and says the same."""
    asked, stand.journal = len(player.bodies), stand.journal.resumed()
    if outcome.status in ENDED:
        assert (await stand.work()).sentence == outcome.sentence
        assert len(player.bodies) == asked
