"""The page that tells the story: plan, work, verification, publication; each step kept as soon as it is done.

plan ∥ suite on base ─► questions? ─► approval? ─► work ⇄ review ─► publish ─► Result
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import NamedTuple

from app.attempts import Attempt, Outcome, ShareSpentError, best, spent_in, told, try_until_proved
from app.errors import ExitCode
from app.gitformat import FileStat
from app.job import Answers, Job, Journal, Parked, Progress
from app.model.budget import Totals
from app.noun import Noun
from app.patch import Patch
from app.plan import Plan
from app.plan_text import render_plan
from app.questions import Answerer, Planner, nobody_answers, settle
from app.result import Result
from app.reviews import Reviews, Verifies
from app.runners.base import Aim, Assignment, Ending, Runner, Submission
from app.sandbox.base import Sandbox
from app.task import STRUCTURAL
from app.verify.facts import Known, Verified


class Published(Noun):
    """Where the patch is now."""

    branch: str
    commit: str
    changes: tuple[FileStat, ...] = ()
    patch: str = ""
    """Digest of the patch among the job's blobs, where somebody else makes the commit of it."""


class Approval(Noun):
    """The plan a person agreed to, as they edited it."""

    plan: Plan


Learns = Callable[[Known, Sequence[Verified], Submission | None], Awaitable[str]]
"""Keeps what a published change teaches for later jobs; returns what people are to be told of it, or nothing."""


async def nothing_is_learned(known: Known, verified: Sequence[Verified], submission: Submission | None) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Bench:
    """One job's rooms, put together in `bootstrap`; everything that touches the world is behind one of these."""

    progress: Progress
    plan: Planner
    """Keeps its own steps."""
    approve: Callable[[Plan], Awaitable[Plan]]
    brief: Callable[[Plan | None, Known, Sequence[Answers]], str]
    open_work: Callable[[str], Awaitable[Sandbox]]
    """The tree of that name, as it was left."""
    export: Callable[[Sandbox], Awaitable[Patch]]
    runner: Callable[[Sandbox, Attempt], Runner]
    verifier: Verifies
    publish: Callable[[Patch, str], Awaitable[Published]]
    totals: Callable[[], Totals]
    answer: Answerer = nobody_answers
    learn: Learns = nothing_is_learned
    changed_lines: Callable[[Patch], int] = lambda _: 0
    keep_diff: Callable[[Patch], str] = lambda _: ""
    """Keeps a change for people, whatever becomes of it; returns the digest among the job's blobs."""
    notes: Sequence[str] = ()
    warnings: Callable[[], tuple[str, ...]] = tuple
    """Asked when the work is done: some show only then."""


async def solve(job: Job, bench: Bench, journal: Journal) -> Result:
    """One job from plan to result. Raises Parked where people have to decide something."""
    if job.aim == "ask":
        raise ValueError(f"job {job.id} asks a question: that is another story, `app.asking`")
    begun = monotonic()
    ready = await _prepare(job, bench, journal)
    result = Result(exit_status="answered", plan=ready.plan, model=job.model, notes=tuple(bench.notes))
    if job.plan_mode != "only":
        result = await _work(job, bench, journal, result, ready)
    told = {"warnings": bench.warnings(), "usage": bench.totals(), "seconds": round(monotonic() - begun, 3)}
    return result.model_copy(update=told)


class Ready(NamedTuple):
    """What the work begins with."""

    plan: Plan | None
    known: Known
    answers: Sequence[Answers] = ()


async def _prepare(job: Job, bench: Bench, journal: Journal) -> Ready:
    """The plan people agreed to and what is known of the base; the model thinks while the suite is executed."""
    baseline = partial(journal.step, "baseline", Known, bench.verifier.baseline)
    if job.plan_mode == "none":
        return Ready(None, await baseline())
    bench.progress.say("state", "planning")
    if job.plan_mode == "only":
        plan = await bench.plan(journal, ())
        bench.progress.say("plan", render_plan(plan))
        return Ready(plan, Known())
    plan, known = await asyncio.gather(bench.plan(journal, ()), baseline())
    bench.progress.say("plan", render_plan(plan))
    answers: Sequence[Answers] = ()
    if not job.plan_file:
        plan, answers = await settle(plan, bench.plan, bench.answer, journal, bench.progress)
    if job.plan_mode == "approve":
        approval = await journal.step("approval", Approval, partial(_approve, bench, plan))
        plan = approval.plan
    return Ready(plan, known, answers)


async def _approve(bench: Bench, plan: Plan) -> Approval:
    return Approval(plan=await bench.approve(plan))


async def _work(job: Job, bench: Bench, journal: Journal, result: Result, ready: Ready) -> Result:
    """The agent works until its submission is accepted; then what was verified, and nothing else, is published."""
    bench.progress.say("state", "working")
    if ready.known.brief:
        bench.progress.say("note", ready.known.brief)
    work = partial(_attempt, job, bench, ready, result)
    outcomes = await try_until_proved(job, journal, work, lambda: bench.totals().cost)
    taken = best(outcomes)
    result = taken.result if job.attempts == 1 else _told(taken, outcomes, bench)
    if taken.verified:
        diff = await asyncio.to_thread(bench.keep_diff, taken.verified[-1].patch)
        result = result.model_copy(update={"diff": diff})
    if taken.is_publishable:
        bench.progress.say("state", "publishing")
        publish = partial(bench.publish, taken.verified[-1].patch, result.summary)
        published = await journal.step("publish", Published, publish)
        learned = await bench.learn(ready.known, taken.verified, taken.submission)
        notes = (*result.notes, *filter(None, (learned,)))
        result = result.model_copy(update={**dict(published), "notes": notes})
    return result


async def _attempt(job: Job, bench: Bench, ready: Ready, result: Result, attempt: Attempt) -> Outcome:
    """One agent in a tree of its own; the tree stays where the last one ended at a limit, for the job to go on."""
    if job.attempts > 1:
        bench.progress.say("note", f"attempt {attempt.number} of at most {job.attempts}")
    sandbox = await bench.open_work(attempt.name)
    try:
        reviews = Reviews(
            bench.verifier,
            partial(bench.export, sandbox),
            attempt.journal,
            bench.progress,
            ready.known,
            settled=not job.expects_red,
        )
        assignment = Assignment(brief=bench.brief(*ready), plan=ready.plan, aim=_aim(job))
        runner = bench.runner(sandbox, attempt)
        ending = await _worked(runner, assignment, reviews)
    finally:
        await sandbox.close()
    if ending.exit_status == "limit_reached" and attempt.waits:
        raise Parked("paused", ending.reason, code=ExitCode.LIMIT_REACHED, hint=_CONTINUE)
    await sandbox.destroy()
    return Outcome(
        number=attempt.number,
        result=_ended(result, ending, reviews.last),
        verified=tuple(reviews.verified),
        submission=ending.submission,
        spent=spent_in(runner.trajectory()),
        changed_lines=bench.changed_lines(reviews.last.patch) if reviews.last and job.attempts > 1 else 0,
    )


async def _worked(runner: Runner, assignment: Assignment, reviews: Reviews) -> Ending:
    try:
        return await runner.work(assignment, reviews.review)
    except ShareSpentError as error:
        return Ending(exit_status="limit_reached", reason=error.message)


def _aim(job: Job) -> Aim:
    if job.conflicts:
        return "merge"
    return "upkeep" if job.kind in STRUCTURAL else "change"


def _told(taken: Outcome, outcomes: Sequence[Outcome], bench: Bench) -> Result:
    """The result with what became of each attempt."""
    bench.progress.say("note", f"attempt {taken.number} of the {len(outcomes)} that were made is taken")
    return taken.result.model_copy(update={"attempts": told(outcomes, taken)})


def _ended(result: Result, ending: Ending, last: Verified | None) -> Result:
    """How the agent's ending and the last verification make the job's final state."""
    verification = last.verification if last else None
    summary = ending.submission.summary if ending.submission else ""
    update = {"verification": verification, "summary": summary, "turns": ending.turns, "reason": ending.reason}
    match ending.exit_status:
        case "limit_reached":
            update["exit_status"] = "limit_reached"
        case "submitted" if verification is not None:
            broken = verification.verdict == "broken"
            update["exit_status"] = "verification_failed" if broken else "pr_opened"
            update["reason"] = " ".join(verification.reasons)
        case "no_change":
            update |= {"exit_status": "no_change", "summary": ending.claim}
        case _ if verification is not None and verification.verdict == "broken":
            update["exit_status"] = "verification_failed"
        case _:
            update["exit_status"] = "error"
            update["error_code"] = ExitCode.MODEL
    return result.model_copy(update=update)


_CONTINUE = "The same command with a higher limit (--budget, --max-steps, --max-minutes) goes on where it stood."
