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

from app.sandbox.base import Sandbox, SandboxLimits, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.always_ends import behaviour, endpoint_faults, overflow
from tests.support.always_ends.case_runner import FILES, Case, CaseRunner, Outcome, alive, tasks_left
from tests.support.always_ends.endpoint import CaseEndpoint
from tests.support.sandboxes import filler, opened

CASES = {case.name: case for family in (endpoint_faults, behaviour, overflow) for case in family.cases()}
OVERFLOW = re.compile("context_length|too large|too long|context size|maximum context")
WAITS_FOR_A_PROCESS = "asyncio-waitpid"
ENDED = frozenset({"submitted", "no_change", "limit_reached", "error"})


@pytest.fixture(scope="module")
def player() -> Iterator[CaseEndpoint]:
    with CaseEndpoint() as player:
        yield player


@pytest.fixture(scope="module")
def before(player: CaseEndpoint) -> tuple[frozenset[str], frozenset[int]]:
    return alive()


def test_the_corpus_has_enough_cases() -> None:
    assert len(CASES) >= 200


@pytest.mark.parametrize("name", CASES)
async def test_a_job_ends_whatever_the_endpoint_answers(
    name: str, player: CaseEndpoint, before: tuple[frozenset[str], frozenset[int]], tmp_path: Path
) -> None:
    case = CASES[name]
    async with _sandbox(case, tmp_path) as sandbox:
        case_runner = CaseRunner(case, player, tmp_path, sandbox)
        await _ends(case_runner, player)
    await _nothing_is_left(before)


@asynccontextmanager
async def _sandbox(case: Case, directory: Path) -> AsyncIterator[Sandbox | None]:
    """A real one for what leaves processes behind: the double has no walls."""
    if not case.boxed:
        yield None
        return
    provider = BubblewrapProvider(directory / "boxes", caches=directory / "caches")
    async with opened(provider, SandboxSpec("job", filler(FILES), limits=SandboxLimits(output=200_000))) as sandbox:
        yield sandbox


async def _ends(case_runner: CaseRunner, player: CaseEndpoint) -> None:
    case = case_runner.case
    outcome = await case_runner.work()
    assert outcome.status in case.ends.split("|"), outcome
    assert case.says in outcome.sentence
    _is_a_sentence(outcome.sentence, model_wrote_it=outcome.status == "submitted")
    assert len(player.bodies) <= case.calls
    _wastes_little(player)
    _keeps_the_budget(case_runner)
    _is_consistent(case_runner, outcome)
    for body in player.bodies:
        _obeys_the_protocol(body["messages"])
    await _is_told_again(case_runner, outcome, player)


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


def _wastes_little(player: CaseEndpoint) -> None:
    """After an overflow that nothing mended, at most three more calls."""
    bodies = [(reply.body or b"").decode("utf-8", "replace") for reply in player.replies]
    after = len(bodies)
    while after and OVERFLOW.search(bodies[after - 1]):
        after -= 1
    assert len(bodies) - after <= 1 + 3


def _keeps_the_budget(case_runner: CaseRunner) -> None:
    """No call begins when the money is spent, none is left open, and no turn is beyond the last."""
    cap = case_runner.case.budget.usd
    assert case_runner.ledger.totals().pending == 0
    assert sum(spent >= cap for spent in case_runner.spent) <= 1
    acted = [name for name in case_runner.journal.kept if name.endswith(".act")]
    assert len(acted) <= case_runner.case.budget.steps


def _is_consistent(case_runner: CaseRunner, outcome: Outcome) -> None:
    """What was stored is one answer and one act for each turn, in order, and nothing of turns that were not."""
    turns = [name.split(".")[1] for name in case_runner.journal.kept if name.endswith(".act")]
    assert turns == [str(number) for number in range(1, len(outcome.steps) + 1)]
    answered = {name.split(".")[1] for name in case_runner.journal.kept if name.endswith(".answer")}
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


async def _is_told_again(case_runner: CaseRunner, outcome: Outcome, player: CaseEndpoint) -> None:
    """The next process of a job that has ended asks nobody and says the same."""
    asked, case_runner.journal = len(player.bodies), case_runner.journal.resumed()
    if outcome.status in ENDED:
        assert (await case_runner.work()).sentence == outcome.sentence
        assert len(player.bodies) == asked
