"""The publishing step: what was wished for is carried out, people are told how it ended, and the workflow too."""

from typing import Final

from app.bootstrap.action import kept_at, open_workflow
from app.bootstrap.publishing import Publishing
from app.entrypoints.carrying import Patience, carry_out_due, the_job
from app.entrypoints.papers import CANCELLED, write_outputs, write_summary
from app.entrypoints.record import write_record
from app.entrypoints.spare import dismiss_spare
from app.errors import AgentFixError, ExitCode
from app.job import FINAL, JobState
from app.jobs.queue import PARKED
from app.jobs.roster import Commissioned
from app.model.sql_ledger import SqlLedger
from app.publish.summary import step_summary
from app.result import Result
from app.settings.workflow import Workflow

PUBLISHING, LAST_WORDS = 900.0, 120.0
"""Seconds of patience with GitHub."""
DIED: Final = "The workflow run ended before the work did; its log may say why."
TOO_LATE: Final = "GitHub did not take the change in time."
CALM: Final[frozenset[JobState]] = frozenset(
    {"pr_opened", "pr_updated", "answered", "no_change", "stopped", "needs_input", "awaiting_approval", "paused"}
)
"""States that are no failure of the workflow: people were told, and it is their turn."""


async def publish(workflow: Workflow) -> int:
    dismiss_spare(workflow.settings.state)
    async with open_workflow(workflow) as workplace:
        publishing = workplace.publishing
        found = the_job(publishing)
        if found is not None:
            _end_what_was_left(publishing, found, workflow.solved)
        try:
            await carry_out_due(publishing, Patience(PUBLISHING), everything=True)
        except AgentFixError:
            if found is None or not publishing.premises.queue.end(found.job.id, "error", TOO_LATE):
                raise
            await carry_out_due(publishing, Patience(LAST_WORDS), everything=True)
        found = the_job(publishing)
        return _report(workflow, publishing, found) if found else ExitCode.OK


def _end_what_was_left(publishing: Publishing, found: Commissioned, solved: str) -> None:
    """Nobody goes on with it after this step: every job gets a final state, or one that people can go on from."""
    if found.row.final or found.handed_over or found.row.state in PARKED:
        return
    state, reason = ("stopped", CANCELLED) if solved == "cancelled" else ("error", found.row.reason or DIED)
    publishing.premises.queue.end(found.job.id, "stopped" if state == "stopped" else "error", reason)


def _report(workflow: Workflow, publishing: Publishing, found: Commissioned) -> int:
    premises, row = publishing.premises, found.row
    result = Result.model_validate(row.result) if row.result else None
    cost = SqlLedger(premises.engine, found.job.id, 0).totals().cost
    verdict = result.verification.verdict if result and result.verification else ""
    outputs = {
        "job": found.job.id,
        "exit-status": row.state,
        "verdict": verdict,
        "pull-request": result.url if result and row.state in FINAL else "",
        "cost": f"{cost / 1_000_000:.4f}",
        "record": str(write_record(workflow, premises, found)),
    }
    write_outputs(workflow, outputs)
    at = f"{workflow.settings.github_url}/{workflow.owner}/{workflow.name}"
    told = step_summary(found.job, row.state, row.reason, result, repository=at, kept=kept_at(workflow))
    write_summary(workflow, told)
    print(f"{row.state}{f': {row.reason}' if row.reason else ''}")
    if row.state in CALM:
        return ExitCode.OK
    code = result.exit_code if result else ExitCode.INTERNAL
    return code if code != ExitCode.OK else ExitCode.INTERNAL
