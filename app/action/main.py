"""`agent-fix action STEP`: the App folded into steps of a workflow, each with only what it may hold.

receive (token) ─► solve (model keys) ─► publish (token), over one SQLite directory below the runner's temporary files.
Before them `ready` starts the process that solve will work in: what takes it long to import is there when it is needed.
"""

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import cast

from app.action.event import read_workflow_event
from app.action.outputs import fail, write_outputs
from app.config.settings import process_environment
from app.config.workflow import (
    KNOWN_BY,
    Step,
    Workflow,
    chosen_variables,
    read_workflow,
    step_environment,
    workflow_from,
)
from app.core import failpoints, log
from app.core.errors import AgentFixError, ExitCode
from app.core.redaction import Redactor
from app.server.standby import dismiss_spare, start_spare


def action_command(arguments: argparse.Namespace) -> int:
    """Start again with this step's environment, where it was started with more; then do the step."""
    step = cast("Step", arguments.step)
    given = process_environment()
    if step == "ready":
        return _make_ready(given)
    own = step_environment(step, given)
    if given.keys() - own.keys():
        words = (sys.executable, "-I", "-m", "app", "action", step)
        os.execve(sys.executable, words, own)  # noqa: S606  # no shell is wanted
    with commands_off():
        workflow = read_workflow(step)
        log.configure(form=workflow.settings.log, redactor=Redactor(workflow.settings.secrets))
        failpoints.arm(workflow.settings.failpoint)
        try:
            return asyncio.run(_do(step, workflow))
        except AgentFixError as error:
            dismiss_spare(workflow.settings.state)
            write_outputs(workflow, {"exit-status": "error"} if step == "publish" else {"work": "false"})
            fail(workflow, error)
            raise


def _make_ready(given: Mapping[str, str]) -> int:
    """Only where something is asked for. What is wrong is said by the step that cannot go on with it."""
    with suppress(AgentFixError):
        workflow, own = workflow_from(step_environment("receive", given)), step_environment("solve", given)
        if workflow.issue or not read_workflow_event(workflow).nothing:
            start_spare(workflow.settings.state, {**own, **chosen_variables(given, KNOWN_BY)})
    return ExitCode.OK


async def _do(step: Step, workflow: Workflow) -> int:
    match step:  # each step imports its own rooms only
        case "receive":
            told = read_workflow_event(workflow)
            if told.nothing and not workflow.issue:
                print(f"Nothing to do: {told.nothing}.")
                write_outputs(workflow, {"work": "false", "job": ""})
                return ExitCode.OK
            from app.action.receive import receive  # noqa: PLC0415

            return await receive(workflow, told)
        case "solve":
            from app.action.solve import solve  # noqa: PLC0415

            return await solve(workflow)
        case _:
            from app.action.publish import publish  # noqa: PLC0415

            return await publish(workflow)


@contextmanager
def commands_off() -> Iterator[None]:
    """Meanwhile no line that is printed is a command to the runner, whoever wrote it: an issue, a model, a test."""
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    try:
        yield
    finally:
        print(f"\n::{word}::", flush=True)
