"""Decides a trigger: stores its job in one transaction with it, or posts one reply that belongs to no job."""

import asyncio
import hashlib
from dataclasses import replace
from datetime import timedelta

from app.config.prompt_overrides import (
    DIRECTORY,
    NO_OVERRIDES,
    Override,
    is_own_name,
    parse_overrides,
    path_of,
    requested_prompt,
)
from app.core.errors import AgentFixError, ConfigError, ExitCode
from app.core.job import PUBLISHED, Job
from app.core.task import AllowedPath
from app.github.base import ReactionTarget
from app.github.errors import NeedsHumanAction
from app.jobs.context import JobContext
from app.jobs.queue import ORDINARY, URGENT
from app.pipeline.lessons.failed_attempts import failed_attempts
from app.publish import replies
from app.publish.effects import AddReaction, ChangeLabels, Effect, UpdateStatusComment
from app.publish.outbox import StaleEpoch, name_without_job
from app.repo.git_format import is_full_id
from app.triggers.decisions import JobRequest
from app.triggers.event_facts import TriggerContext
from app.triggers.fact_loader import is_full, limit_reached
from app.triggers.github_clients import RepositoryContext
from app.triggers.job_draft import JobDraft, as_before, kind_of_request
from app.triggers.prompt_context import PromptContext, load_prompt_context
from app.triggers.stores import ServerDefaults, Stores

NEEDS_HUMAN = "agent-needs-human"


class ReplyPoster:
    """Posts replies and stores the trigger's outcome. Blocking and idempotent."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    def answer(self, trigger_context: TriggerContext, outcome: str, words: str, *, once_for: str = "") -> str:
        """Reply and decide the trigger. With `once_for`, the same reply is posted only once per issue."""
        if trigger_context.requested:
            self._stores.requests.end(trigger_context.requested, "stopped", words)
            return self.decide(trigger_context, outcome)
        key = trigger_context.trigger.key
        if once_for:
            digest = hashlib.sha256(once_for.encode()).hexdigest()[:16]
            key = f"r{trigger_context.repo_context.repository.id}#{trigger_context.trigger.number}/told:{digest}"
        self._add_effect(key, trigger_context, UpdateStatusComment(body=words))
        return self.decide(trigger_context, outcome)

    def acknowledge(self, trigger_context: TriggerContext) -> None:
        """Add 👀 to what was written, if it accepts reactions."""
        if trigger_context.target is not None and not trigger_context.requested:
            seen = AddReaction(target=trigger_context.target, content="eyes")
            self._add_effect(trigger_context.trigger.key, trigger_context, seen)

    def request_attention(self, trigger_context: TriggerContext) -> None:
        """Mark that the bot cannot continue without a person."""
        self._add_effect(trigger_context.trigger.key, trigger_context, ChangeLabels(add=(NEEDS_HUMAN,)))

    def decide(self, trigger_context: TriggerContext, outcome: str, job: str = "") -> str:
        self._stores.triggers.record(trigger_context.trigger, outcome, job)
        return outcome

    def _add_effect(self, key: str, trigger_context: TriggerContext, effect: Effect) -> None:
        self._stores.outbox.add(name_without_job(key), 0, trigger_context.issue_ref, effect)


PRIORITIES = {"ask": 0, "plan": 0, "fix_checks": 2}
"""Lower is sooner; all else is ordinary, unless it is urgent."""
RETRY_SOON = timedelta(seconds=2)
MAX_EARLIER = 10
"""Jobs of the issue among which failed attempts are looked for."""


class RetryLater(AgentFixError):  # noqa: N818  # a wait
    """Something must end or appear first; the delivery is retried later."""

    def __init__(self, message: str, after: timedelta = RETRY_SOON) -> None:
        super().__init__(message, code=ExitCode.BUSY)
        self.after = after


class StateChanged(RetryLater):
    """A job started or ended here since the state was read, so the event must be decided again."""


class JobCreator:
    """Creates and restarts jobs."""

    def __init__(self, stores: Stores, defaults: ServerDefaults, reply_poster: ReplyPoster) -> None:
        self._stores = stores
        self._defaults = defaults
        self._reply_poster = reply_poster

    async def start(
        self,
        job_request: JobRequest,
        trigger_context: TriggerContext,
        *,
        request: str = "",
        plan_file: str = "",
        formerly_allowed: tuple[AllowedPath, ...] = (),
    ) -> str:
        """Create a job for a comment, a label, a question, or failing checks."""
        runner = job_request.options.runner
        if runner is not None and runner not in self._defaults.runners:
            words = replies.unknown_runner(runner, self._defaults.runners)
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply unknown_runner", words)
        pull, repo_context = trigger_context.found.pull, trigger_context.repo_context
        try:
            prompt = await _asked_prompt(job_request, repo_context)
        except ConfigError as error:
            words = replies.no_prompt(error.message)
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply unknown_prompt", words)
        base = pull.head if pull else await _tip(repo_context)
        if base is None or not is_full_id(base):
            words = (
                replies.no_commits() if base is None else replies.refused("The repository does not use SHA-1 objects.")
            )
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply no_base", words)
        job_request = _with_description(job_request, trigger_context)
        prompt_context = await load_prompt_context(job_request, repo_context, pull, trigger_context.trigger.at)
        await asyncio.to_thread(self._add_failed_attempts, job_request, prompt_context)
        if job_request.aim == "fix_checks":
            failing = ", ".join(prompt_context.failing_checks) or "see below"
            request = f"Checks fail on this pull request: {failing}. Fix the cause."
        draft = self._draft(job_request, trigger_context, base, prompt_context, request=request, plan_file=plan_file)
        draft = replace(draft, prompt=prompt, formerly_allowed=formerly_allowed)
        return await self._admit(await _with_prompts(draft), trigger_context)

    def _add_failed_attempts(self, job_request: JobRequest, prompt_context: PromptContext) -> None:
        """Tell the model why earlier attempts at this issue failed."""
        origin = job_request.origin
        earlier = self._stores.job_queries.of_issue(origin.repository, origin.number, MAX_EARLIER)
        section = failed_attempts(each.row for each in earlier) if job_request.aim != "ask" else None
        if section is not None:
            prompt_context.sections.append(section)
            prompt_context.notes.append("The agent was told why earlier attempts at this failed.")

    async def restart(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        """Stop the current job, then create the same one again."""
        former = trigger_context.found.job
        if former is not None and not former.row.final:
            ended = await asyncio.to_thread(
                self._stores.queue.stop, former.job.id, "The job was started again from scratch."
            )
            if not ended:
                raise RetryLater("Wait until the current job ends.")
        if former is None:
            return await self.start(job_request, trigger_context, request=job_request.text)
        request = job_request.text or former.job.task.request
        kept = former.row.state not in PUBLISHED and not self._defaults.operator.locks("protected_paths")
        return await self.start(
            as_before(job_request, former.job),
            trigger_context,
            request=request,
            formerly_allowed=former.job.task.allowed_paths if kept else (),
        )

    async def move(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        """Create a job that updates our branch to its base, or adds an empty commit so that CI can start.

        No model is used.
        """
        pull, repo_context = trigger_context.found.pull, trigger_context.repo_context
        if pull is None:
            raise ValueError(f"/agent {job_request.aim} works on pull requests only")
        if job_request.aim == "ci":
            return await self._admit(
                self._draft(job_request, trigger_context, pull.head, PromptContext()), trigger_context
            )
        tip = await repo_context.reader.head(pull.base_branch)
        if tip is None:
            words = replies.refused(f"The branch `{pull.base_branch}` no longer exists.")
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply no_base", words)
        if await repo_context.reader.merge_base(tip, pull.head) == tip:
            words = replies.reply(f"The branch already contains everything in `{pull.base_branch}`.")
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply up_to_date", words)
        prompt_context = await load_prompt_context(job_request, repo_context, pull, trigger_context.trigger.at)
        request = (
            f"Bring the branch up to `{pull.base_branch}`: resolve the conflicts, so that both sides' intent is kept."
        )
        request = f"{request}\n\n{job_request.text}".strip()
        draft = self._draft(
            job_request, trigger_context, pull.head, prompt_context, request=request, parents=(pull.head, tip)
        )
        return await self._admit(await _with_prompts(draft), trigger_context)

    def _draft(
        self,
        job_request: JobRequest,
        trigger_context: TriggerContext,
        base: str,
        prompt_context: PromptContext,
        *,
        request: str = "",
        plan_file: str = "",
        parents: tuple[str, ...] = (),
    ) -> JobDraft:
        if isinstance(trigger_context.found.config, AgentFixError):
            raise TypeError("nothing starts while the configuration is invalid")
        return JobDraft(
            job_request=job_request,
            repo_context=trigger_context.repo_context,
            config=trigger_context.found.config,
            defaults=self._defaults,
            base=base,
            created_at=self._stores.clock(),
            prompt_context=prompt_context,
            pull=trigger_context.found.pull,
            person=trigger_context.found.requester.person if trigger_context.found.requester else None,
            login=trigger_context.trigger.login,
            request=request,
            plan_file=plan_file,
            parents=parents,
        )

    async def _admit(self, draft: JobDraft, trigger_context: TriggerContext) -> str:
        job, job_context = draft.job(), draft.job_context()
        state, waits = trigger_context.found.state, ""
        if not state.linked_is_ours and is_full(job_context, state.open_pull_requests):
            waits = limit_reached(job_context)
            if not self._defaults.waits:
                words = replies.refused(waits)
                return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply limit", words)
        admitted = await asyncio.to_thread(
            self._keep, job, job_context, trigger_context, urgent=draft.urgent, waits=waits
        )
        if not admitted:
            return "decided before"
        if admitted != job.id:
            raise StateChanged(f"Job {admitted} is already running here.")
        return f"job {job.id}"

    def _keep(
        self, job: Job, job_context: JobContext, trigger_context: TriggerContext, *, urgent: bool, waits: str
    ) -> str:
        priority = URGENT if urgent else PRIORITIES.get(job_context.aim, ORDINARY)
        admitted = self._stores.queue.admit(job, job_context, trigger_context.trigger, priority=priority, waits=waits)
        if admitted == job.id and job_context.target is not None:
            self._react(job, job_context, job_context.target)
        return admitted

    def _react(self, job: Job, job_context: JobContext, target: ReactionTarget) -> None:
        """React at once; the status updater would do it too, so a crash here loses nothing."""
        try:
            self._stores.outbox.add(job.id, 0, job_context.issue_ref, AddReaction(target=target, content="eyes"))
        except StaleEpoch:  # a worker already has it
            return


async def _with_prompts(draft: JobDraft) -> JobDraft:
    """Use the default branch's prompts for a pull request: its own branch cannot change them."""
    if draft.pull is None or draft.job_request.aim == "ask":
        return draft
    kind = kind_of_request(draft.job_request, draft.request, draft.prompt, on_pull=True).kind
    path = path_of(kind)
    content = await draft.repo_context.reader.file(path)
    found = NO_OVERRIDES if content is None else parse_overrides({path: content})
    return replace(draft, overrides=found if draft.prompt is None else found.with_file(draft.prompt))


async def _asked_prompt(job_request: JobRequest, repo_context: RepositoryContext) -> Override | None:
    """The prompt that was asked for, from the default branch. Raises ConfigError if there is none of that name."""
    name = job_request.options.prompt
    if not name or job_request.aim == "ask":
        return None
    path = path_of(name)
    content = await repo_context.reader.file(path) if is_own_name(name) else None
    if content is None:
        return requested_prompt(name, NO_OVERRIDES, await repo_context.reader.files_in(DIRECTORY))
    return requested_prompt(name, parse_overrides({path: content}))


async def _tip(repo_context: RepositoryContext) -> str | None:
    """The default branch's head commit; None if there is no commit yet."""
    try:
        return await repo_context.reader.head(repo_context.repository.default_branch)
    except NeedsHumanAction:  # GitHub's answer for an empty repository
        return None


def _with_description(job_request: JobRequest, trigger_context: TriggerContext) -> JobRequest:
    """Add the pull request's description, which deliveries about failing checks do not contain."""
    pull = trigger_context.found.pull
    if job_request.aim != "fix_checks" or pull is None:
        return job_request
    about = {"title": pull.title, "body": pull.body}
    return job_request.model_copy(update={"subject": job_request.subject.model_copy(update=about)})
