"""How long until something happens: `--help`, and the first request to a model."""

import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.endpoint import MODEL, Stopwatch
from bench.ground import COMMAND, BenchDirectory, Command, Spent, spent
from bench.table import Row
from tests.support.recorded_answers import RecordedAnswers

KILLED = -signal.SIGKILL
IMPORT = (sys.executable, "-c", "import litellm")


def measure(ground: BenchDirectory, repeat: int) -> list[Row]:
    """On a warm state: a job of this repository was done before."""
    recording = RecordedAnswers().plan().save(ground.root / "plan.jsonl")
    rounds: list[tuple[Callable[[], Spent], list[Spent]]] = [
        (partial(spent, (str(COMMAND), "--help"), ground.environment), []),
        (partial(spent, IMPORT, ground.environment), []),
        (partial(_first_request, ground.fix("--model", MODEL), ground.environment), []),
        (partial(_recorded, ground, recording), []),
    ]
    for _ in range(repeat):  # in turns, so that the load of the moment falls on all alike
        for take, taken in rounds:
            taken.append(take())
    helped, imported, asked, replayed = (taken for _, taken in rounds)
    return [
        Row("agent-fix --help", _clock(helped), "s", aim=0.15),
        Row("import litellm, alone", _clock(imported), "s"),
        Row("start to first request, LiteLLM", _clock(asked), "s", than=_clock(imported), note="aim: ratio 1.15"),
        Row("  the same, processor time", _processor(asked), "s", than=_processor(imported)),
        Row("start to first answer, recorded", _clock(replayed), "s", aim=0.8),
        Row("  the same, processor time", _processor(replayed), "s"),
    ]


def _first_request(argv: Sequence[str], environment: Mapping[str, str]) -> Spent:
    """Until a request arrives at an endpoint on the loopback; ours is that for the plan."""
    with Stopwatch() as endpoint:
        command = Command(argv, {**environment, **endpoint.environment()})
        arrived = endpoint.wait(lambda: command.ended)
        if arrived is not None:
            command.kill()
        whole = command.end(KILLED)
    return Spent((arrived or 0.0) - command.begun, whole.cpu)


def _recorded(ground: BenchDirectory, recording: Path) -> Spent:
    """Until the answer is booked, which is where the process kills itself."""
    environment = ground.environment | {"AGENT_FIX_FAILPOINT": "plan.booked"}
    return Command(ground.fix("--model", f"recorded/{recording}"), environment).end(KILLED)


def _clock(taken: list[Spent]) -> list[float]:
    return [one.seconds for one in taken]


def _processor(taken: list[Spent]) -> list[float]:
    return [one.cpu for one in taken]
