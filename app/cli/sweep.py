"""`agent-fix sweep`: starts work on labelled issues within the caps, and explains each decision."""

import argparse
import asyncio
import json
from contextlib import nullcontext

from app.action.context import write_outputs, write_summary
from app.action.main import commands_off
from app.config.settings import Settings, process_environment, read_server_settings
from app.config.workflow import TOKEN, Workflow, github_token, step_environment, workflow_from
from app.core import log
from app.core.errors import AgentFixError, ExitCode
from app.core.redaction import Redactor
from app.core.text import one_line
from app.publish.markdown import cell, table
from app.publish.status_text import linked
from app.server.issue_sweep import IssueSweep, Ordering, SweepDecision, open_issue_sweep, sweep


def sweep_command(arguments: argparse.Namespace) -> int:
    """In a workflow the issues are an output, for a matrix; with a server's App jobs are admitted."""
    owner, _, name = arguments.repo.partition("/")
    given = process_environment()
    token = github_token(given)
    workflow = workflow_from(step_environment("publish", given)) if given.get("GITHUB_OUTPUT") else None
    settings = workflow.settings if workflow else read_server_settings(arguments.state, "publisher")
    settings.check()
    if not token and not settings.app_id:
        raise AgentFixError(
            "There are no credentials for GitHub.", hint=f"Set {TOKEN}, or what `agent-fix serve` needs."
        )
    log.configure(form=settings.log, redactor=Redactor((*settings.secrets, token)))
    with commands_off() if workflow else nullcontext():
        return asyncio.run(_sweep(arguments, (owner, name), token, settings, workflow))


async def _sweep(
    arguments: argparse.Namespace, place: tuple[str, str], token: str, settings: Settings, workflow: Workflow | None
) -> int:
    async with open_issue_sweep(settings, *place, token, in_workflow=workflow is not None) as issue_sweep:
        ordering: Ordering = arguments.order or ("given" if arguments.query else "oldest")
        rows = sweep(await issue_sweep.candidates(arguments.query), await issue_sweep.caps(arguments.max), ordering)
        outcomes = {} if token or arguments.dry_run else await _admit(issue_sweep, rows)
    numbers = [row.number for row in rows if not row.reason]
    if arguments.json:
        looked_at = [{"number": row.number, "title": row.title, "skipped": row.reason} for row in rows]
        print(json.dumps({"issues": numbers, "looked_at": looked_at}, indent=2))
    else:
        for row in rows:
            print(f"#{row.number:<6} {outcomes.get(row.number) or _becomes(row):<50} {one_line(row.title)[:80]}")
        print(
            f"{len(numbers)} of {len(rows)} taken." if rows else "No open issue has the label, or matches the search."
        )
    if workflow is not None:
        write_outputs(workflow, {"issues": json.dumps(numbers)})
        write_summary(workflow, swept_table(rows, f"{settings.github_url}/{'/'.join(place)}"))
    return ExitCode.OK


async def _admit(issue_sweep: IssueSweep, rows: tuple[SweepDecision, ...]) -> dict[int, str]:
    return {row.number: await issue_sweep.admit(row.number) for row in rows if not row.reason}


def swept_table(rows: tuple[SweepDecision, ...], repository: str = "") -> str:
    """The table for the workflow's page; titles are escaped, because other people wrote them."""
    shown = [
        (linked(row.number, repository), cell(row.title), cell(row.reason) or f"**{_becomes(row)}**") for row in rows
    ]
    return "## Sweep\n\n" + (table(("Issue", "Title", "Result"), shown) if rows else "No issue was found.")


def _becomes(row: SweepDecision) -> str:
    return row.reason or ("ended: its workflow run ended without a report" if row.ends else "taken")
