"""Prompt tokens of one script of 20 steps, with observations of 2,000 characters, by whoever plays it."""

import json
from pathlib import Path
from typing import Any

from bench import mini as peers
from bench.counting import asks_for_plan
from bench.endpoint import MODEL, Counting, Turn
from bench.ground import BenchDirectory, Command
from bench.table import Row

STEPS = 20
LIMIT_REACHED = 22
FINISHED = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
PLAN = {"summary": "Give the rest to the first people.", "hypotheses": ["integer division"], "steps": ["test", "fix"]}


def measure(ground: BenchDirectory, _repeat: int, mini: Path | None) -> list[Row]:
    """Once: the same script gives the same requests."""
    with Counting(play) as ours:
        options = ("--no-plan", "--max-steps", str(STEPS), "--model", MODEL)
        Command(ground.fix(*options), ground.environment | ours.environment()).end(LIMIT_REACHED)
    rows = [_row("prompt tokens of a 20-step script", ours)]
    if mini is not None:
        with Counting(play) as theirs:
            Command(peers.command(mini, ground), peers.environment(ground) | theirs.environment()).end(0)
        rows = [_row("prompt tokens of a 20-step script", ours, theirs), _row("  mini-swe-agent", theirs)]
    return rows


def play(body: dict[str, Any]) -> Turn:
    """The next step of the script, found by the answers that the request already holds."""
    if asks_for_plan(body):
        return Turn(json.dumps(PLAN))
    step = 1 + sum(message["role"] == "assistant" for message in body["messages"])
    offered = {tool["function"]["name"] for tool in body["tools"]}
    if step < STEPS:
        observed = f"head -c 1990 /dev/zero | tr '\\0' x; echo; echo step {step:03}"
        change = f"echo '# {step}' >> money.py; " if "submit" in offered else ""
        return Turn("Go on.", [_call(step, "bash", command=change + observed)])
    if "submit" in offered:
        return Turn("Done.", [_call(step, "submit", summary="Done.", reproduction="python3 -m unittest")])
    return Turn("Done.", [_call(step, "bash", command=FINISHED)])


def _call(step: int, tool: str, **arguments: str) -> tuple[str, str, str]:
    return f"call-{step}", tool, json.dumps(arguments)


def _row(name: str, counted: Counting, beside: Counting | None = None) -> Row:
    note = f"first request {counted.characters[0] / 4:,.0f}, {len(counted.characters)} requests"
    return Row(name, [counted.tokens], "", than=[beside.tokens] if beside else (), note=note)
