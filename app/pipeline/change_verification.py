"""Judges a change that somebody made: nobody fixes anything, and nothing is published.

author of examples, on base and intent ─► examples, suite on base and change ─► reviewer ─► second opinion ─► verdict
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import monotonic

from app.agent.base import Submission
from app.agent.second_opinion import SecondOpinion
from app.core.errors import AgentFixError, ExitCode
from app.core.examples import Example, FrozenExamples, JudgedExample, PlanExamples, Review
from app.core.job import Job, JobResult, Journal
from app.core.patch import FileStat, Patch
from app.core.plan import Plan
from app.core.verification import Facts, Verification, VerifiedPatch
from app.pipeline.pipeline import BaseSuite, JobServices
from app.verify.ending import why_it_ended
from app.verify.examples.checks import is_hidden
from app.verify.verdict import facts_of, with_verdict

AskAgain = Callable[[str, Sequence[JudgedExample]], Awaitable[SecondOpinion]]
"""(whose they are, examples that fail) → whether another conversation derives the same outputs."""


@dataclass(frozen=True, slots=True)
class ChangeServices:
    """What is needed beside a job's services. `patch` and `stat` block."""

    patch: Callable[[], Patch]
    stat: Callable[[Patch], tuple[FileStat, ...]]
    issue: str
    """The intent, as people wrote it."""
    ask_again: AskAgain
    counter: Callable[[Sequence[Example], Patch], Awaitable[Review]]
    """Runs a reviewer's examples on base and change."""


async def verify_change(job: Job, services: JobServices, change: ChangeServices, journal: Journal) -> JobResult:
    """The verdict on a change. Raises AgentFixError if there is nothing to judge."""
    started = monotonic()
    patch = await asyncio.to_thread(change.patch)
    if patch.empty:
        raise AgentFixError("Base and change have the same files: nothing can be verified.", code=ExitCode.NO_CHANGE)
    services.progress.report("state", "planning")
    await services.set_up()
    base = BaseSuite(services, journal)
    try:
        writing = asyncio.ensure_future(_author(job, services, change, journal))
        base.start()
        plan, examples = await writing
        services.progress.report("state", "verifying")
        known = (await base.result()).model_copy(update={"examples": examples})
        verify = partial(services.verifier.verify, patch, Submission(summary=""), known)
        found = await journal.step("verify.1", VerifiedPatch, verify)
        if job.frozen is not None:
            verification = with_verdict(await _run_again(change, journal, found, job.frozen))
        else:
            verification = await _confirmed(change, journal, await _reviewed(services, journal, found))
    finally:
        await base.cancel()
    services.progress.report("verification", f"{verification.verdict}: {' '.join(verification.reasons)}")
    return JobResult(
        exit_status="verified",
        reason=why_it_ended("", verification),
        verification=verification,
        examples=examples,
        summary=plan.summary if plan is not None else "",
        commit=job.change,
        changes=await asyncio.to_thread(change.stat, patch),
        model=job.main_model,
        notes=tuple(services.notes),
        warnings=services.warnings(),
        usage=services.totals(),
        seconds=round(monotonic() - started, 3),
    )


async def _author(
    job: Job, services: JobServices, change: ChangeServices, journal: Journal
) -> tuple[Plan | None, PlanExamples | None]:
    """The author's reading of the intent, and the examples; an example counts as hidden if its values are its own."""
    if not job.expects_red:
        return None, None
    plan: Plan | None = None
    if job.frozen is not None:
        freeze = partial(_on_this_base, services, job.frozen)
        found = await journal.step("examples", PlanExamples, freeze)
    else:
        proposed = await services.plan(journal, ())
        plan, found = proposed.plan, proposed.found
    services.progress.report("note", f"{len(found.examples)} examples, written without seeing the change")
    examples = tuple(one.model_copy(update={"hidden": is_hidden(one, (change.issue,), "")}) for one in found.examples)
    return plan, found.model_copy(update={"examples": examples})


async def _on_this_base(services: JobServices, frozen: FrozenExamples) -> PlanExamples:
    if not frozen.author:
        return PlanExamples(absent="the verification of an earlier commit has none.")
    return (await services.freeze([one.written for one in frozen.author], ()))[0]


async def _run_again(change: ChangeServices, journal: Journal, found: VerifiedPatch, frozen: FrozenExamples) -> Facts:
    """The facts about a later commit, by what was written for an earlier one. No model is asked.

    An example that fails counts, unless it failed before and was unconfirmed.
    """
    facts = facts_of(found.verification) | {"frozen": True}
    work = partial(change.counter, [one.written for one in frozen.reviewer], found.patch)
    review = await journal.step("review", Review, work) if frozen.reviewer else Review()
    facts["review"] = review.model_copy(update={"absent": "none has seen this commit."})
    for whose in ("examples", "review"):
        has: PlanExamples | Review | None = facts[whose]
        if has is not None:
            doubted = [one.model_copy(update={"unconfirmed": frozen.doubt_about(one)}) for one in has.examples]
            facts[whose] = has.model_copy(update={"examples": tuple(doubted)})
    return Facts(**facts)


async def _reviewed(services: JobServices, journal: Journal, found: VerifiedPatch) -> Verification:
    """With a reviewer's counter-examples; the reviewer sees those of the author that hold."""
    now = found.verification
    if any(gate.outcome == "blocked" for gate in now.gates):
        return now
    holding = tuple(one for one in now.examples.examples if one.holds) if now.examples is not None else ()
    shown = now.model_copy(update={"examples": PlanExamples(examples=holding)})
    review = await journal.step("review", Review, partial(services.ask_reviewer, "review", found.patch, shown))
    outcome = f"{len(review.examples)} counter-examples" if review.answered else f"no answer: {review.absent}"
    services.progress.report("note", f"reviewer: {outcome}")
    return with_verdict(Facts(**{**facts_of(now), "review": review}))


async def _confirmed(change: ChangeServices, journal: Journal, now: Verification) -> Verification:
    """An example that fails counts only if the other of the two conversations derives the same output."""
    facts = facts_of(now)
    for whose, has in (("author", now.examples), ("reviewer", now.review)):
        failing = [one for one in has.examples if one.fails and not one.is_question] if has is not None else []
        if has is None or not failing:
            continue
        opinion = await journal.step(f"opinion.{whose}", SecondOpinion, partial(change.ask_again, whose, failing))
        judged = tuple(
            one.model_copy(update={"unconfirmed": opinion.unconfirmed.get(one.name, "")}) for one in has.examples
        )
        facts["examples" if whose == "author" else "review"] = has.model_copy(update={"examples": judged})
    return with_verdict(Facts(**facts))
