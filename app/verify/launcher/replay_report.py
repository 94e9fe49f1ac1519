"""Reads what the programs report that call tests without their framework."""

import ast
import json
from typing import Any

from app.verify.launcher.base import OddResult, ReplayReport
from app.verify.launcher.supervisor_client import SupervisorAnswer


def read_replay(answer: SupervisorAnswer) -> ReplayReport:
    """One program for each of the steps; a phase that was not reached has no outcomes."""
    outcomes: dict[str, dict[str, tuple[str, str]]] = {}
    odd: list[OddResult] = []
    problem, unfinished = answer.problem, False
    for step in answer.steps:
        problem = problem or step.not_started or step.broken
        ended = False
        for text in step.messages:
            match _message(text):
                case ("result", str(name), str(phase), str(kind), str(shown)) if not ended:
                    outcomes.setdefault(phase, {})[name] = (kind, shown)
                case ("odd", str(name), str(kind), list(methods)) if not ended:
                    found = tuple((str(method), str(file), int(line)) for method, file, line in methods)
                    odd.append(OddResult(name, kind, found))
                case ("end",):
                    ended = True
                case _:
                    problem = problem or "A result has a form that our program does not send."
        unfinished = unfinished or not ended
    return ReplayReport(outcomes, tuple(odd), problem, unfinished)


def _message(text: str) -> tuple[Any, ...]:
    """A Python literal or a JSON array."""
    for read in (ast.literal_eval, json.loads):
        try:
            return tuple(read(text))
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
    return ()
