"""`agent-fix jobs`: what is and was worked on, its log as it grows, and the way to stop it."""

import argparse
import json
import sys
import time
from datetime import UTC, datetime
from typing import TypedDict

from app.bootstrap import open_store
from app.entrypoints.terminal import TerminalProgress
from app.errors import ExitCode
from app.jobs.store import JobRow, JobStore
from app.model.base import MicroUSD
from app.model.budget import usd
from app.settings import read_settings

POLL_SECONDS = 0.3


def jobs_command(arguments: argparse.Namespace) -> int:
    store = open_store(read_settings(arguments.state))
    match arguments.action:
        case "show":
            return _show(store, arguments)
        case "logs":
            return _logs(store, arguments)
        case "cancel":
            return _cancel(store, arguments)
        case _:
            return _list(store, arguments)


def _list(store: JobStore, arguments: argparse.Namespace) -> int:
    rows = store.newest(getattr(arguments, "n", 20))
    if getattr(arguments, "json", False):
        print(json.dumps([_summary(row) for row in rows], indent=2))
        return ExitCode.OK
    if not rows:
        print("No jobs yet. `agent-fix fix --repo PATH --issue FILE` starts one.")
        return ExitCode.OK
    print(f"{'JOB':<14}{'STATE':<22}{'AGE':<8}{'VERDICT':<10}{'COST':<9}TITLE")
    for row in rows:
        summary = _summary(row)
        cost = usd(summary["cost"]) if summary["cost"] is not None else "-"
        title = row.job.task.issue.title[:60]
        state, verdict = summary["state"], summary["verdict"] or "-"
        print(f"{row.job.id:<14}{state:<22}{_age(row.job.created_at):<8}{verdict:<10}{cost:<9}{title}")
    return ExitCode.OK


def _show(store: JobStore, arguments: argparse.Namespace) -> int:
    row = store.find(arguments.job)
    if arguments.json:
        print(json.dumps({**_summary(row), "result": row.result}, indent=2))
        return ExitCode.OK
    job, summary = row.job, _summary(row)
    facts = {
        "job": job.id,
        "issue": job.task.issue.title,
        "repository": job.task.repository,
        "base": f"{job.task.base_ref} ({job.task.base[:10]})",
        "branch": job.branch,
        "model": job.model,
        "state": summary["state"] + (f": {row.reason}" if row.reason else ""),
        "verdict": summary["verdict"] or "-",
        "cost": usd(summary["cost"]) if summary["cost"] is not None else "-",
        "begun": f"{job.created_at:%Y-%m-%d %H:%M:%S} UTC, {row.epoch} time(s) taken up",
    }
    for name, value in facts.items():
        print(f"{name:<11}{value}")
    log = list(store.said(job.id))
    plans = [line.text for line in log if line.kind == "plan"]
    if plans:
        print(f"\nplan\n{plans[-1]}")
    steps = [line.text for line in log if line.kind == "step"]
    print(f"\nsteps ({len(steps)})")
    for text in steps:
        print(f"  {text.splitlines()[0]}")
    return ExitCode.OK


def _logs(store: JobStore, arguments: argparse.Namespace) -> int:
    row = store.find(arguments.job)
    terminal = TerminalProgress(sys.stdout)
    seen = 0
    while True:
        # The state is read before the log: what is said before a job ends is never missed.
        row = store.find(row.job.id)
        for line in store.said(row.job.id, after=seen):
            terminal.say(line.kind, line.text)
            seen = line.seq
        if not arguments.follow or row.final or (row.living_owner is None and row.state != "queued"):
            return ExitCode.OK
        time.sleep(POLL_SECONDS)


def _cancel(store: JobStore, arguments: argparse.Namespace) -> int:
    row = store.find(arguments.job)
    if row.final:
        print(f"Job {row.job.id} has ended already: {row.state}.")
        return ExitCode.OK
    store.request_stop(row.job.id)
    if row.living_owner is None:
        store.enter(row.job.id, "stopped", "cancelled with `agent-fix jobs cancel`")
        print(f"Job {row.job.id} is stopped; nobody was working on it.")
    else:
        print(f"Job {row.job.id} stops within a second.")
    return ExitCode.OK


class Summary(TypedDict):
    """What a list shows of a job."""

    job: str
    title: str
    state: str
    reason: str
    verdict: str | None
    branch: str | None
    cost: MicroUSD | None
    created_at: str


def _summary(row: JobRow) -> Summary:
    """A job whose process died is told from one that is worked on."""
    result = row.result or {}
    interrupted = not row.final and row.living_owner is None and row.state not in {"paused", "awaiting_approval"}
    return {
        "job": row.job.id,
        "title": row.job.task.issue.title,
        "state": f"{row.state} (interrupted)" if interrupted else row.state,
        "reason": row.reason,
        "verdict": (result.get("verification") or {}).get("verdict"),
        "branch": result.get("branch") or None,
        "cost": (result.get("usage") or {}).get("cost"),
        "created_at": row.job.created_at.isoformat(),
    }


def _age(since: datetime) -> str:
    seconds = int((datetime.now(UTC) - since).total_seconds())
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
