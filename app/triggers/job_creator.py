"""Creates jobs: from a request to the stored job, or to a reply that says why there is none; and releases waiting ones.

`JobDraft` has the pure rules for which setting takes precedence: the command, the repository, the server.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Literal

from app.config.repository import (
    DIRECTORY,
    NO_OVERRIDES,
    OperatorDefaults,
    Override,
    Overrides,
    RepoConfig,
    is_own_name,
    parse_overrides,
    path_of,
    requested_prompt,
)
from app.core.errors import AgentFixError, ConfigError, ExitCode
from app.core.examples import FrozenExamples, PlanExamples
from app.core.issue_file import issue_of
from app.core.job import PUBLISHED, Job, new_job_id
from app.core.model_usage import ModelNames
from app.core.task import (
    FIX_OPEN_CHECKS,
    REVIEW_REQUEST,
    AllowedPath,
    Issue,
    KindDecision,
    Task,
    TaskOrigin,
    TaskSignals,
    WorkType,
    explicitly_requested_kind,
    kind_of,
    kind_of_change,
)
from app.core.text import hidden_characters, one_line, visible
from app.github.base import CHECK_OF_CHANGE, NeedsHumanAction
from app.github.models import PullRequest, Repository
from app.github.reader import RepositoryReader
from app.jobs.context import JobAim, JobContext, PublishTarget
from app.jobs.queue import ORDINARY, URGENT
from app.jobs.store import JobQueries, JobWithContext
from app.pipeline.failed_attempts import failed_attempts
from app.publish import replies
from app.publish.body_edits import holds_commits_of_a_fork
from app.publish.effects import AddReaction
from app.publish.outbox import StaleEpoch
from app.repo.git_format import is_full_id
from app.repo.inspection import slug
from app.triggers.decisions import JobRequest, TriggerAnswer, TriggerContext
from app.triggers.github_clients import GitHubClients, RepositoryContext, read_config
from app.triggers.neighbours import note_about
from app.triggers.prompt_context import PromptContext, load_prompt_context
from app.triggers.stores import ServerDefaults, Stores

PRIORITIES = {"ask": 0, "plan": 0, "reproduce": 0, "fix_checks": 2}
"""Lower is sooner; all else is ordinary, unless it is urgent."""
EVERY = timedelta(minutes=1)
"""How often a repository with waiting jobs is looked at: a job that ended without a pull request sends no webhook."""
STARTED_AGAIN = "The job was started again from scratch."
MAX_EARLIER = 10
"""Jobs of the issue among which failed attempts are looked for."""
logger = logging.getLogger(__name__)


class RetryLater(AgentFixError):  # noqa: N818  # a wait
    """Something must end or appear first; the delivery is retried later."""

    exit_code = ExitCode.BUSY


class StateChanged(RetryLater):
    """A job started or ended here since the state was read, so the event must be decided again."""


@dataclass(frozen=True, slots=True)
class JobDraft:
    """Everything that a new job is made from."""

    request: JobRequest
    context: TriggerContext
    defaults: ServerDefaults
    aim: JobAim
    """A fix on a pull request is a follow-up."""
    base: str
    """The id of the commit that the work starts from."""
    created_at: datetime
    prompt_context: PromptContext = field(default_factory=PromptContext)
    text: str = ""
    """Replaces the request's own text if not empty."""
    plan_file: str = ""
    reproduced: PlanExamples | None = None
    """The examples of the job that wrote `plan_file`, which nobody has approved; None if people have."""
    parents: tuple[str, ...] = ()
    overrides: Overrides | None = None
    prompt: Override | None = None
    """The repository's own prompt that was asked for."""
    former: JobWithContext | None = None
    """The job that is started again, and stopped if it is active."""
    intent: Issue | None = None
    """For a verification: what the pull request is for."""
    required: bool = False
    frozen: FrozenExamples | None = None

    @property
    def config(self) -> RepoConfig:
        """Raises TypeError if the repository's configuration is invalid."""
        config = self.context.facts.config
        if isinstance(config, ConfigError):
            raise TypeError("nothing starts while the configuration is invalid")
        return config

    @property
    def base_branch(self) -> str:
        """The branch that the change is for, where there is no pull request."""
        return base_branch(self.request, self.config, self.context.repo.repository)

    @property
    def urgent(self) -> bool:
        """True if the command or a label of the issue says so."""
        labels = {label.casefold() for label in self.request.subject.labels}
        return self.request.options.urgent or not labels.isdisjoint(map(str.casefold, self.config.urgent_labels))

    def job(self) -> Job:
        options, config = self.request.options, self.config
        task, pull = self._task(), self.context.facts.pull
        models = self.defaults.models.model_copy(update={"code": self.defaults.model})
        if options.model:
            models = ModelNames(code=options.model)
        elif config.model is not None:
            models = config.model.models
        budget = config.budget.over(self.defaults.budget)
        if options.budget is not None:
            budget = budget.model_copy(update={"usd": options.budget})
        elif self.aim in {"ask", "reproduce"}:
            budget = budget.for_a_look()
        elif self.aim == "verify":
            budget = budget.for_a_verdict()
        same_branch = pull is not None and self._publish_target() == "same_branch"
        new_branch = config.branch_for(slug=task.slug, number=self.context.trigger.number)
        return Job(
            id=self.context.promised_job or new_job_id(),
            task=task,
            branch=pull.head_branch if pull is not None and same_branch else new_branch,
            budget=budget,
            model=models.code,
            models=models.model_copy(update={"code": ""}),
            reasoning="" if options.model else config.reasoning or "",
            runner=options.runner or config.runner or "native",
            sandbox=self.defaults.sandbox,
            plan_mode=self._plan_mode(),
            plan_file=self.plan_file,
            examples=tuple(one.written for one in self.reproduced.examples) if self.reproduced else (),
            outdated=self.reproduced.outdated if self.reproduced else (),
            aim=self.aim if self.aim in {"ask", "reproduce", "verify"} else "fix",
            change=pull.head if pull is not None and self.aim == "verify" else "",
            frozen=self.frozen,
            attempts=options.attempts or 1,
            created_at=self.created_at.replace(microsecond=0),
        )

    def job_context(self) -> JobContext:
        request, repository, facts = self.request, self.context.repo.repository, self.context.facts
        target, pull = self._publish_target(), facts.pull
        fork = pull is not None and holds_commits_of_a_fork(pull, repository.id)
        return JobContext(
            issue_ref=self.context.issue_ref,
            aim="follow_up" if self.aim == "fix" and pull is not None else self.aim,
            trigger=request.trigger,
            login=self.context.trigger.login,
            app=facts.via or (facts.requester.app if facts.requester else None),
            author=self.context.repo.ours.person,
            config=self.config.model_copy(update={"ci": "manual"}) if fork else self.config,
            publish_target=target,
            base_ref=pull.base_branch if pull else self.base_branch,
            pull=pull.number if pull else None,
            fork=fork,
            required=self.required,
            expected=pull.head if pull and target == "same_branch" else "",
            parents=self.parents,
            overrides=self.overrides,
            threads=self.prompt_context.thread_refs if target != "nowhere" else (),
            notes=tuple(self._notes()),
        )

    def _task(self) -> Task:
        request, repository, facts = self.request, self.context.repo.repository, self.context.facts
        subject, pull = request.subject, facts.pull
        issue = self.intent or issue_of(
            subject.title, subject.body, number=self.context.trigger.number, labels=subject.labels
        )
        kind = self.kind()
        if self.aim == "revise":
            default_text = REVIEW_REQUEST
        else:
            asks = pull is not None and self.aim not in {"ask", "conflicts", "verify"}
            default_text = FIX_OPEN_CHECKS if asks else ""
        allow = request.options.allow
        allowed = [each for each in self._formerly_allowed() if each.path != allow]
        if allow:
            allowed.append(AllowedPath(path=allow, by=self.context.trigger.login))
        return Task(
            repository=f"{repository.owner}/{repository.name}",
            issue=issue,
            base=self.base,
            base_ref=self._base_ref,
            slug=slug(issue.title),
            requester=facts.requester.person if facts.requester else None,
            origin=TaskOrigin(
                installation=self.context.repo.installation,
                repository=repository.id,
                number=self.context.trigger.number,
                is_pull_request=subject.is_pull_request,
                actor=self.context.trigger.actor,
            ),
            request=self.text or request.text or default_text,
            sections=tuple(self.prompt_context.sections),
            kind=kind.kind,
            kind_reason=kind.reason,
            prompt=self.prompt.name if self.prompt else "",
            allowed_paths=tuple(allowed),
        )

    @property
    def _base_ref(self) -> str:
        pull = self.context.facts.pull
        if pull is None:
            return self.base_branch
        return pull.base_branch if self.aim == "verify" else pull.head_branch

    def _formerly_allowed(self) -> tuple[AllowedPath, ...]:
        """What people allowed the former job, if it changed nothing on GitHub."""
        former = self.former
        if former is None or former.row.state in PUBLISHED or self.defaults.operator.locks("protected_paths"):
            return ()
        return former.job.task.allowed_paths

    def _publish_target(self) -> PublishTarget:
        return "nowhere" if self.aim in {"ask", "plan", "reproduce", "verify"} else self.request.destination

    def kind(self) -> KindDecision:
        """The kind of task that is requested."""
        request, prompt = self.request, self.prompt
        if self.intent is not None:
            signals = TaskSignals(title=self.intent.title, labels=request.subject.labels)
            return kind_of_change(kind_of(signals))
        places: dict[JobAim, WorkType] = {"fix_checks": "checks", "conflicts": "merge"}
        return kind_of(
            TaskSignals(
                title=one_line(visible(request.subject.title).text),
                request=self.text or request.text,
                labels=request.subject.labels,
                work=places.get(self.aim, "issue" if self.context.facts.pull is None else "pull request"),
                requested_kind=request.options.kind,
                prompt=prompt.name if prompt else "",
                prompt_kind=prompt.kind if prompt else None,
            )
        )

    def _plan_mode(self) -> Literal["auto", "approve", "only", "none"]:
        """An approved plan is not made again; a change to a pull request is small, or says itself what to do."""
        if self.aim in {"plan", "reproduce"}:
            return "only"
        approved = self.plan_file and (self.reproduced is None or self.config.plan == "none")
        if approved or self.aim == "verify":
            return "auto"
        return "none" if self.context.facts.pull is not None or self.aim == "ask" else self.config.plan

    def _notes(self) -> list[str]:
        request, prompt_context = self.request, self.prompt_context
        notes = []
        removed = sum(map(hidden_characters, (request.subject.title, request.subject.body)))
        for count, where in ((removed, "the description"), (prompt_context.hidden_characters, "the conversation")):
            if count:
                what = "1 hidden character was" if count == 1 else f"{count:,} hidden characters were"
                notes.append(f"{what} removed from {where}.")
        if edited := [part for part in request.changed if part != "head"]:
            notes.append(f"Edited after the request: {', '.join(edited)}. The job uses the text from before.")
        if "head" in request.changed:
            notes.append("The branch has moved since the request; the work started from its current state.")
        if about := note_about(self.context.facts.state.neighbours):
            notes.append(about)
        if overruled := self.config.overruled:
            notes.append(
                f"The operator of this server decides {', '.join(overruled)}; the repository's file has no say."
            )
        return [*notes, *self.config.gone, *prompt_context.notes]


def base_branch(request: JobRequest, config: RepoConfig, repository: Repository) -> str:
    """The branch that was asked for, or else the configuration's for this issue, or else the default branch."""
    subject = request.subject
    return request.options.base or config.base_for(subject.labels, subject.milestone) or repository.default_branch


def as_before(request: JobRequest, former: Job) -> JobRequest:
    """Repeat a former job or plan, with its settings unless the request sets others."""
    options = request.options
    attempts = options.attempts or (former.attempts if former.attempts > 1 else None)
    prompt = options.prompt or former.task.prompt or None
    kept = {"kind": options.kind or explicitly_requested_kind(former.task), "attempts": attempts, "prompt": prompt}
    if not request.subject.is_pull_request:
        kept["base"] = options.base or former.task.base_ref or None
    return request.model_copy(update={"options": options.model_copy(update=kept)})


def branches_in_use(
    job_queries: JobQueries,
    repository: int,
    pulls: Iterable[PullRequest],
    bot: int,
    *,
    waiting: bool = True,
    except_issue: int = 0,
) -> frozenset[str]:
    """The branches of the bot's open pull requests, and of active jobs that will open one.

    `waiting`: also of jobs that wait themselves; `except_issue` leaves out the jobs of an issue.
    """
    active = (
        each.job.branch
        for each in job_queries.active_jobs(repository=repository)
        if each.job_context.opens_pull_request
        and each.job_context.issue_ref.number != except_issue
        and (waiting or each.waiting_for != "pull_requests")
    )
    return frozenset({*(each.head_branch for each in pulls if each.author == bot), *active})


def is_full(job_context: JobContext, in_use: int) -> bool:
    """True if a new job cannot open its pull request yet."""
    most = job_context.config.max_open_pull_requests
    return most is not None and job_context.opens_pull_request and in_use >= most


def limit_reached(job_context: JobContext) -> str:
    """What stands in a new job's way, for people."""
    most = job_context.config.max_open_pull_requests
    are = "1 agent-fix pull request is" if most == 1 else f"{most} agent-fix pull requests are"
    return f"{are} already open or in progress, which is the limit for this repository."


class JobCreator:
    """Creates jobs. Returns the outcome of a job that is stored with its trigger, or a TriggerAnswer."""

    def __init__(self, stores: Stores, defaults: ServerDefaults) -> None:
        self._stores = stores
        self._defaults = defaults

    async def start(
        self,
        request: JobRequest,
        context: TriggerContext,
        *,
        aim: JobAim = "fix",
        text: str = "",
        plan_file: str = "",
        reproduced: PlanExamples | None = None,
        former: JobWithContext | None = None,
    ) -> str | TriggerAnswer:
        """Create a job for a comment, a label, a question, or failing checks. `text` replaces the request's own."""
        runner, repo = request.options.runner, context.repo
        if runner is not None and runner not in self._defaults.runners:
            return TriggerAnswer("reply unknown_runner", replies.unknown_runner(runner, self._defaults.runners))
        try:
            prompt = await _asked_prompt(request, repo) if aim != "ask" else None
        except ConfigError as error:
            return TriggerAnswer("reply unknown_prompt", replies.no_prompt(error.message))
        base = await _base(request, context)
        if isinstance(base, TriggerAnswer):
            return base
        prompt_context = await load_prompt_context(request, context)
        if aim != "ask":
            await asyncio.to_thread(self._add_failed_attempts, context, prompt_context)
        if aim == "fix_checks":
            if former is not None and not prompt_context.failing_checks:
                reason = "No check fails on this pull request any more."
                return TriggerAnswer("reply no_failing_checks", replies.refused(reason))
            failing = ", ".join(prompt_context.failing_checks) or "see below"
            text = f"Checks fail on this pull request: {failing}. Fix the cause.\n\n{request.text}".strip()
        draft = self.draft(request, context, aim=aim, base=base, prompt_context=prompt_context, text=text)
        return await self.admit(
            replace(draft, plan_file=plan_file, reproduced=reproduced, prompt=prompt, former=former)
        )

    async def verify(
        self,
        request: JobRequest,
        context: TriggerContext,
        *,
        base: str,
        intent: Issue,
        frozen: FrozenExamples | None = None,
    ) -> str | TriggerAnswer:
        """Create a job that judges a pull request from this commit on, which its branch began at."""
        pull = context.facts.pull
        required = pull is not None and await context.repo.reader.requires_check(pull.base_branch, CHECK_OF_CHANGE)
        draft = self.draft(request, context, aim="verify", base=base)
        return await self.admit(replace(draft, intent=intent, required=required, frozen=frozen))

    def _add_failed_attempts(self, context: TriggerContext, prompt_context: PromptContext) -> None:
        """Tell the model why earlier attempts at this issue failed."""
        issue_ref = context.issue_ref
        earlier = self._stores.job_queries.of_issue(issue_ref.repository, issue_ref.number, MAX_EARLIER)
        if section := failed_attempts(each.row for each in earlier):
            prompt_context.sections.append(section)
            prompt_context.notes.append("The agent was told why earlier attempts at this failed.")

    def draft(
        self,
        request: JobRequest,
        context: TriggerContext,
        *,
        aim: JobAim,
        base: str,
        parents: tuple[str, ...] = (),
        prompt_context: PromptContext | None = None,
        text: str = "",
    ) -> JobDraft:
        """What a job is made from; `base` is the id of the commit that its work starts from."""
        now, sections = self._stores.clock(), prompt_context or PromptContext()
        return JobDraft(request, context, self._defaults, aim, base, now, sections, text, parents=parents)

    async def admit(self, draft: JobDraft) -> str | TriggerAnswer:
        """Store the job, or say why it has to wait where nothing can.

        Raises StateChanged beside an active job, and RetryLater while a process still works on the former job.
        """
        draft = await _with_prompts(draft)
        job, job_context, state, waiting_reason = draft.job(), draft.job_context(), draft.context.facts.state, ""
        if not state.linked_is_ours and is_full(job_context, state.open_pull_requests):
            waiting_reason = limit_reached(job_context)
            if not self._defaults.can_wait:
                return TriggerAnswer("reply limit", replies.refused(waiting_reason))
        await self._stop(draft.former)
        admitted = await asyncio.to_thread(self._keep, draft, job, job_context, waiting_reason)
        if not admitted:
            return "decided before"
        if admitted != job.id:
            raise StateChanged(f"Job {admitted} is already running here.")
        return f"job {job.id}"

    async def _stop(self, former: JobWithContext | None) -> None:
        """Stop the job that is started again, now that nothing stands in the way."""
        if former is None or former.row.final:
            return
        if not await asyncio.to_thread(self._stores.queue.stop, former.job.id, STARTED_AGAIN):
            raise RetryLater("Wait until the current job ends.")

    def _keep(self, draft: JobDraft, job: Job, job_context: JobContext, waiting_reason: str) -> str:
        """Store the job, and react to what was written at once; returns the id of the job that is active here now."""
        priority = URGENT if draft.urgent else PRIORITIES.get(job_context.aim, ORDINARY)
        trigger, target = draft.context.trigger, job_context.target
        admitted = self._stores.queue.admit(job, job_context, trigger, priority=priority, waiting_reason=waiting_reason)
        if admitted == job.id and target is not None:
            # The status updater would react too, so a crash here loses nothing; nor does a worker that already has it.
            with suppress(StaleEpoch):
                self._stores.outbox.add(job.id, 0, job_context.issue_ref, AddReaction(target=target, content="eyes"))
        return admitted


async def _with_prompts(draft: JobDraft) -> JobDraft:
    """Use the default branch's prompts for a pull request, or another base: these branches cannot change them."""
    at_default = draft.context.facts.pull is None and draft.base_branch == draft.context.repo.repository.default_branch
    if at_default or draft.aim in {"ask", "ci", "verify"}:
        return draft
    path = path_of(draft.kind().kind)
    content = await draft.context.repo.reader.file(path)
    found = NO_OVERRIDES if content is None else parse_overrides({path: content})
    return replace(draft, overrides=found if draft.prompt is None else found.with_file(draft.prompt))


async def _asked_prompt(request: JobRequest, repo: RepositoryContext) -> Override | None:
    """The prompt that was asked for, from the default branch. Raises ConfigError if there is none of that name."""
    name = request.options.prompt
    if not name:
        return None
    path = path_of(name)
    content = await repo.reader.file(path) if is_own_name(name) else None
    if content is None:
        return requested_prompt(name, NO_OVERRIDES, await repo.reader.files_in(DIRECTORY))
    return requested_prompt(name, parse_overrides({path: content}))


async def _base(request: JobRequest, context: TriggerContext) -> str | TriggerAnswer:
    """The id of the commit to start from, or why there is none."""
    pull, repo, config = context.facts.pull, context.repo, context.facts.config
    if pull is not None and request.options.base not in {None, pull.base_branch}:
        return TriggerAnswer("reply no_base", replies.refused("`--base` cannot change a pull request's target."))
    default = repo.repository.default_branch
    branch = default if isinstance(config, ConfigError) else base_branch(request, config, repo.repository)
    commit = pull.head if pull else await _tip(repo, branch)
    if commit is None:
        text = replies.no_commits() if branch == default else replies.refused(f"There is no branch `{branch}` here.")
        return TriggerAnswer("reply no_base", text)
    if not is_full_id(commit):
        return TriggerAnswer("reply no_base", replies.refused("The repository does not use SHA-1 objects."))
    return commit


async def _tip(repo: RepositoryContext, branch: str) -> str | None:
    """The branch's head commit; None if there is no such branch, or no commit yet."""
    try:
        return await repo.reader.head(branch)
    except NeedsHumanAction:  # GitHub's answer for an empty repository
        return None


class PullRequestLimit:
    """Looks at repositories with waiting jobs, and releases as many as the limit allows."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, operator: OperatorDefaults) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._operator = operator
        self._due: dict[int, datetime] = {}

    def look_at(self, repository: int) -> None:
        """Look at this repository next: one of its pull requests was closed."""
        self._due.pop(repository, None)

    async def release_due(self) -> int:
        """Look at the repositories that are due; returns how many jobs were released."""
        waiting: dict[int, list[tuple[str, JobContext]]] = {}
        for job_id, job_context in await asyncio.to_thread(self._stores.job_queries.waiting_for_pull_requests):
            waiting.setdefault(job_context.issue_ref.repository, []).append((job_id, job_context))
        now, released = self._stores.clock(), 0
        self._due = {repository: due for repository, due in self._due.items() if repository in waiting}
        for repository, found in waiting.items():
            if self._due.get(repository, now) <= now:
                self._due[repository] = now + EVERY
                released += await self._release(found)
        return released

    async def _release(self, waiting: list[tuple[str, JobContext]]) -> int:
        place = waiting[0][1].issue_ref
        released = 0
        try:
            reader = await self._github_clients.for_issue(place)
            for job_id, job_context in waiting[: await self._free(reader, waiting[0][1], len(waiting))]:
                # What was merged meanwhile is what the work has to start from.
                base = await reader.head(job_context.base_ref) if job_context.pull is None else None
                released += await asyncio.to_thread(self._stores.queue.end_wait, job_id, base or "")
        except AgentFixError as error:  # the next look may succeed; access that was lost ends the jobs elsewhere
            logger.warning("jobs of %s/%s wait on: %s", place.owner, place.name, error.message)
        return released

    async def _free(self, reader: RepositoryReader, first: JobContext, wanted: int) -> int:
        """How many more pull requests may be opened, up to `wanted`."""
        found = await read_config(reader, self._operator)
        config = found if isinstance(found, RepoConfig) else first.config  # that of its request was valid
        if config.max_open_pull_requests is None:
            return wanted
        bot = (await self._github_clients.ourselves(reader)).user
        queries, repository, pulls = (
            self._stores.job_queries,
            first.issue_ref.repository,
            await reader.open_pull_requests(),
        )
        in_use = await asyncio.to_thread(branches_in_use, queries, repository, pulls, bot, waiting=False)
        return max(config.max_open_pull_requests - len(in_use), 0)
