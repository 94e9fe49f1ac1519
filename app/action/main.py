"""`agent-fix action STEP`: the App as steps of a workflow, each with only the secrets it may hold.

receive (token) ─► solve (model keys) ─► publish (token), over one SQLite directory below the runner's temporary files.
"""

import argparse
import asyncio
import ctypes
import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from app.action.context import fail, read_workflow_event, write_outputs
from app.config.settings import process_environment
from app.config.workflow import (
    Step,
    Workflow,
    read_workflow,
    step_environment,
)
from app.core import failpoints, log
from app.core.errors import AgentFixError, ExitCode
from app.core.redaction import Redactor

_PR_SET_DUMPABLE: Final = 4


def action_command(arguments: argparse.Namespace) -> int:
    """Restart with only this step's environment if there is more, then run the step."""
    step = cast("Step", arguments.step)
    if step == "progress":  # the solve step has begun by now
        keep_environment_private()
    given = process_environment()
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
            if step != "progress":  # a later step than the one that started it may own the outputs by now
                write_outputs(workflow, {"exit-status": "error"} if step == "publish" else {"work": "false"})
            fail(workflow, error)
            raise


async def _do(step: Step, workflow: Workflow) -> int:
    match step:  # each step imports only what it needs
        case "receive":
            event = read_workflow_event(workflow)
            if event.nothing and not workflow.issue:
                print(f"Nothing to do: {event.nothing}.")
                write_outputs(workflow, {"work": "false", "job": ""})
                return ExitCode.OK
            from app.action.receive import receive  # noqa: PLC0415

            return await receive(workflow, event)
        case "solve":
            from app.action.solve import solve  # noqa: PLC0415

            return await solve(workflow)
        case "progress":
            from app.action.publish import show_progress  # noqa: PLC0415

            return await show_progress(workflow)
        case _:
            from app.action.publish import publish  # noqa: PLC0415

            return await publish(workflow)


def keep_environment_private() -> None:
    """Other processes of this user cannot read this one's environment, where the token is, from /proc."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


@contextmanager
def commands_off() -> Iterator[None]:
    """Stop the runner from reading printed lines as workflow commands; an issue, a model or a test may print one."""
    word = secrets.token_hex(16)
    print(f"::stop-commands::{word}", flush=True)
    try:
        yield
    finally:
        print(f"\n::{word}::", flush=True)
