"""`rebase`: bring our pull request's branch up to its base, with a model only if there are conflicts."""

from dataclasses import replace

from app.jobs.store import JobWithContext
from app.publish import replies
from app.triggers.decisions import JobRequest, TriggerAnswer, TriggerContext
from app.triggers.handlers.base import CommandCall, CommandHandler, Outcome, early_draft, refuse_pull_requests_of_others
from app.triggers.job_creator import JobCreator
from app.triggers.prompt_context import load_prompt_context


async def _run(call: CommandCall) -> Outcome:
    return early_draft(call.context) or await merge_base_branch(call.request, call.context, call.job_creator)


async def merge_base_branch(
    request: JobRequest, context: TriggerContext, job_creator: JobCreator, *, former: JobWithContext | None = None
) -> Outcome:
    """Create the job that merges the base branch into our branch, in place of the former one.

    Raises ValueError for an issue.
    """
    pull, reader = context.facts.pull, context.repo.reader
    if pull is None:
        raise ValueError("only a pull request has a base branch")
    tip = await reader.head(pull.base_branch)
    if tip is None:
        return TriggerAnswer("reply no_base", replies.refused(f"The branch `{pull.base_branch}` no longer exists."))
    if await reader.merge_base(tip, pull.head) == tip:
        text = replies.reply(f"The branch already contains everything in `{pull.base_branch}`.")
        return TriggerAnswer("reply up_to_date", text)
    text = f"Bring the branch up to `{pull.base_branch}`: resolve the conflicts, so that both sides' intent is kept."
    if former is not None and not request.text:
        text = former.job.task.request or text
    draft = job_creator.draft(
        request,
        context,
        aim="conflicts",
        base=pull.head,
        parents=(pull.head, tip),
        prompt_context=await load_prompt_context(request, context),
        text=f"{text}\n\n{request.text}".strip(),
    )
    return await job_creator.admit(replace(draft, former=former))


REBASE = CommandHandler(_run, refuse=refuse_pull_requests_of_others)
