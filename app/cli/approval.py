"""`--approve`: shows the plan and asks a person to accept, reject or edit it."""

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

from app.core.errors import AgentFixError, ExitCode
from app.core.job import WaitingForUser
from app.core.plan import Plan
from app.core.plan_text import parse_plan_file, render_plan_file
from app.server.terminal import TerminalProgress

PLAN_FILE = "plan.md"


async def ask_at_terminal(terminal: TerminalProgress, plan: Plan, *, out: Path, editor: str) -> Plan:
    """The accepted plan.

    Raises WaitingForUser if nobody can be asked or the answer is no; OUT keeps the plan.
    """
    path = out / PLAN_FILE
    path.write_text(render_plan_file(plan), "utf-8")
    if sys.stdin is None or not sys.stdin.isatty():
        hint = f"Edit {path} and pass it with --plan, or use --approve in a terminal."
        raise WaitingForUser(
            "awaiting_approval", "The plan is waiting for approval.", code=ExitCode.AWAITING_APPROVAL, hint=hint
        )
    with terminal.paused():
        return await _ask_until_decided(plan, path, editor)


async def _ask_until_decided(plan: Plan, path: Path, editor: str) -> Plan:
    while True:
        answer = await asyncio.to_thread(_ask)
        if answer in {"y", "yes"}:
            return plan
        if answer in {"e", "edit"}:
            plan = await asyncio.to_thread(_edit, path, editor, plan)
        elif answer in {"n", "no"}:
            hint = f"The plan is in {path}. Run the same command to be asked again, or edit it and pass --plan."
            raise WaitingForUser(
                "awaiting_approval", "The plan was not approved.", code=ExitCode.AWAITING_APPROVAL, hint=hint
            )


def _ask() -> str:
    """Ask once; end of input means no. The question is not part of the `--json` output."""
    print("Continue with this plan? [y]es, [e]dit, [n]o: ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line.strip().lower() if line else "no"


def _edit(path: Path, editor: str, plan: Plan) -> Plan:
    """The plan after editing. An unreadable plan is reported, and the last good one is kept."""
    subprocess.run([*shlex.split(editor), str(path)], check=False)
    try:
        return parse_plan_file(path.read_text("utf-8"))
    except AgentFixError as error:
        print(f"{error.message} The plan was not changed.", file=sys.stderr)
        return plan
