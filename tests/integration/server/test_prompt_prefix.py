"""What really goes over the wire: each request begins with the bytes of the one before, in the next process too."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from app.core.job import Budget
from tests.support.always_ends.answers import FIX, LOOK, MORE, SUBMIT, act, bash, edit, say
from tests.support.always_ends.case_runner import ACCEPTED, Case, CaseRunner
from tests.support.always_ends.endpoint import CaseEndpoint, always, first
from tests.support.always_ends.overflow import price, worked
from tests.support.always_ends.second_process import store
from tests.support.memory_journal import Died

ODD = act(
    ("bash", '{"command" :  "printf \'\\u00e4 \\\\x1b[0m\'",\n "timeout": 9.0}'), content='Say "ä" \\ / \u2028 \t'
)
TURNS = (
    LOOK,
    ODD,
    say(""),
    act(("bash", "{'command': ls}"), ("view", {"path": "nowhere"}), ids="same"),
    FIX,
    edit("nowhere", "x"),
    bash("seq 1 9000; printf '\\xff\\n'"),
    MORE,
    SUBMIT,
)
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def player() -> Iterator[CaseEndpoint]:
    with CaseEndpoint() as player:
        yield player


def messages(raw: bytes) -> bytes:
    """The bytes of a request's messages, without the bracket that ends them."""
    text = raw.decode()
    begin = text.index('"messages":') + len('"messages":')
    end = json.JSONDecoder().raw_decode(text[begin:].lstrip())[1]
    return text[begin : begin + end].strip().removesuffix("]").encode()


def rest(raw: bytes) -> bytes:
    """All other bytes of a request: model, tools, limits."""
    return raw.replace(messages(raw), b"")


def job(**more: object) -> Case:
    case = Case("prefix", first(TURNS, always(SUBMIT)), "submitted", len(TURNS), reviews=(ACCEPTED,))
    return replace(case, **more)  # type: ignore[arg-type]


def check(player: CaseEndpoint) -> None:
    for before, after in pairwise(player.raw):
        assert messages(after).startswith(messages(before))
        assert rest(after) == rest(before)


async def test_every_request_begins_with_the_bytes_of_the_one_before(player: CaseEndpoint, tmp_path: Path) -> None:
    outcome = await CaseRunner(job(), player, tmp_path).work()
    assert outcome.status == "submitted"
    assert len(player.raw) == len(TURNS)
    check(player)


async def test_another_process_goes_on_with_the_same_bytes(player: CaseEndpoint, tmp_path: Path) -> None:
    case_runner = CaseRunner(job(), player, tmp_path / "root")
    case_runner.journal.die_at, case_runner.journal.moment = "turn.6.act", "during"
    with pytest.raises(Died):
        await case_runner.work()
    asked = len(player.raw)
    store(case_runner, player.url, tmp_path / "kept.json")
    arguments = ("-m", "tests.support.always_ends.second_process", str(tmp_path / "kept.json"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, cwd=REPOSITORY, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    said, errors = await process.communicate()
    assert said.decode().strip() == "submitted", errors.decode()
    assert (asked, len(player.raw)) == (6, len(TURNS)), "what was paid for is not bought again"
    check(player)


async def test_after_a_compaction_only_the_head_is_the_same_and_then_all_again(
    player: CaseEndpoint, tmp_path: Path
) -> None:
    turns = first([*worked(12), FIX, SUBMIT], always(SUBMIT))
    case = job(play=turns, price=price(16_000), budget=Budget(steps=20))
    assert (await CaseRunner(case, player, tmp_path).work()).status == "submitted"
    pairs = pairwise(player.raw)
    steps = [messages(after).startswith(messages(before)) for before, after in pairs]
    assert 1 <= steps.count(False) <= len(steps) // 3
    heads = {json.dumps([body["messages"][:2], body["tools"]]) for body in player.bodies}
    assert len(heads) == 1
