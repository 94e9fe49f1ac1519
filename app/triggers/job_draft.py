"""Builds a job and its context from a request, by pure rules for which setting takes precedence."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.config.prompt_overrides import Override, Overrides
from app.config.repository import RepoConfig
from app.core.issue_file import issue_of
from app.core.job import Budget, Job, new_job_id
from app.core.model_names import ModelNames
from app.core.task import (
    AllowedPath,
    KindDecision,
    Person,
    Task,
    TaskSignals,
    WorkType,
    explicitly_requested_kind,
    kind_of,
)
from app.core.text import one_line, visible
from app.github.models import PullRequest
from app.jobs.context import JobAim, JobContext, PublishTarget
from app.publish.body_edits import holds_commits_of_a_fork
from app.repo.inspection import slug
from app.triggers.decisions import JobRequest, RequestAim
from app.triggers.github_clients import RepositoryContext
from app.triggers.prompt_context import PromptContext
from app.triggers.stores import ServerDefaults

REVIEW_REQUEST = "A review requests changes: address its threads."
FIX_OPEN_CHECKS = "Address what is open on this pull request: its review threads and its failing checks."


@dataclass(frozen=True, slots=True)
class JobDraft:
    """Everything that a new job is made from."""

    job_request: JobRequest
    repo_context: RepositoryContext
    config: RepoConfig
    defaults: ServerDefaults
    base: str
    """The id of the commit that the work starts from."""
    created_at: datetime
    prompt_context: PromptContext
    pull: PullRequest | None = None
    person: Person | None = None
    login: str = ""
    request: str = ""
    """Replaces the request's own text if not empty."""
    plan_file: str = ""
    parents: tuple[str, ...] = ()
    overrides: Overrides | None = None
    prompt: Override | None = None
    """The repository's own prompt that was asked for."""
    formerly_allowed: tuple[AllowedPath, ...] = ()
    """What people allowed the same job before, which changed nothing on GitHub."""

    @property
    def urgent(self) -> bool:
        """True if the command or a label of the issue says so."""
        labels = {label.casefold() for label in self.job_request.subject.labels}
        return self.job_request.options.urgent or not labels.isdisjoint(map(str.casefold, self.config.urgent_labels))

    def job(self) -> Job:
        job_request, options, config = self.job_request, self.job_request.options, self.config
        task, models = self._task(), self._models()
        return Job(
            id=job_request.new_job or new_job_id(),
            task=task,
            branch=self._branch(task.slug),
            budget=self._budget(),
            model=models.code,
            models=models.model_copy(update={"code": ""}),
            reasoning="" if options.model else config.reasoning or "",
            runner=options.runner or config.runner or "native",
            sandbox=self.defaults.sandbox,
            plan_mode=self._plan_mode(),
            plan_file=self.plan_file,
            aim="ask" if job_request.aim == "ask" else "fix",
            attempts=options.attempts or 1,
            created_at=self.created_at.replace(microsecond=0),
        )

    def job_context(self) -> JobContext:
        job_request, repository, pull = self.job_request, self.repo_context.repository, self.pull
        target = self._target()
        fork = pull is not None and holds_commits_of_a_fork(pull, repository.id)
        return JobContext(
            issue_ref=self.repo_context.issue_ref(job_request.origin.number),
            aim=self._aim(),
            trigger=job_request.trigger,
            login=self.login,
            author=self.repo_context.ours.person,
            config=self.config.model_copy(update={"ci": "manual"}) if fork else self.config,
            publish_target=target,
            base_ref=pull.base_branch if pull else repository.default_branch,
            pull=pull.number if pull else None,
            fork=fork,
            expected=pull.head if pull and target == "same_branch" else "",
            parents=self.parents,
            overrides=self.overrides,
            threads=self.prompt_context.thread_refs if target != "nowhere" else (),
            notes=tuple(self._notes()),
        )

    def _task(self) -> Task:
        job_request, repository = self.job_request, self.repo_context.repository
        subject, number = job_request.subject, job_request.origin.number
        issue = issue_of(subject.title, subject.body, number=number, labels=subject.labels)
        kind = kind_of_request(job_request, self.request, self.prompt, on_pull=self.pull is not None)
        return Task(
            repository=repository_name(self.repo_context),
            issue=issue,
            base=self.base,
            base_ref=self.pull.head_branch if self.pull else repository.default_branch,
            slug=slug(issue.title),
            requester=self.person,
            origin=job_request.origin,
            request=self.request or job_request.text or self._default_request(),
            sections=tuple(self.prompt_context.sections),
            kind=kind.kind,
            kind_reason=kind.reason,
            prompt=self.prompt.name if self.prompt else "",
            allowed_paths=self._allowed(),
        )

    def _allowed(self) -> tuple[AllowedPath, ...]:
        path = self.job_request.options.allow
        added = (AllowedPath(path=path, by=self.login),) if path else ()
        return (*(each for each in self.formerly_allowed if each.path != path), *added)

    def _default_request(self) -> str:
        """The default text if nothing was written."""
        if self.job_request.aim == "revise":
            return REVIEW_REQUEST
        return FIX_OPEN_CHECKS if self.pull is not None and self.job_request.aim != "ask" else ""

    def _models(self) -> ModelNames:
        """Model names by precedence: the command, the repository, the server. Each sets every kind of work."""
        if self.job_request.options.model:
            return ModelNames(code=self.job_request.options.model)
        if self.config.model is not None:
            return self.config.model.models
        return self.defaults.models.model_copy(update={"code": self.defaults.model})

    def _branch(self, name: str) -> str:
        if self.pull is not None and self._target() == "same_branch":
            return self.pull.head_branch
        return self.config.branch_for(slug=name, number=self.job_request.origin.number)

    def _target(self) -> PublishTarget:
        return "nowhere" if self.job_request.aim in {"ask", "plan"} else self.job_request.destination

    def _aim(self) -> JobAim:
        match self.job_request.aim:
            case "ask" | "plan" | "fix_checks" | "ci" | "revise" as same:
                return same
            case "rebase":
                return "conflicts"
            case _:
                return "follow_up" if self.pull is not None else "fix"

    def _budget(self) -> Budget:
        budget = self.config.budget.over(self.defaults.budget)
        if self.job_request.options.budget is not None:
            return budget.model_copy(update={"usd": self.job_request.options.budget})
        return budget.for_a_question() if self.job_request.aim == "ask" else budget

    def _plan_mode(self) -> Literal["auto", "approve", "only", "none"]:
        """An approved plan is not made again; a change to a pull request is small, or says itself what to do."""
        if self.job_request.aim == "plan":
            return "only"
        if self.plan_file:
            return "auto"
        return "none" if self.pull is not None or self.job_request.aim == "ask" else self.config.plan

    def _notes(self) -> list[str]:
        job_request, context = self.job_request, self.prompt_context
        removed = visible(job_request.subject.title).removed + visible(job_request.subject.body).removed
        notes = [_hidden(removed, "the description")] if removed else []
        notes += [_hidden(context.hidden_characters, "the conversation")] if context.hidden_characters else []
        words = [part for part in job_request.changed if part != "head"]
        if words:
            notes.append(f"Edited after the request: {', '.join(words)}. The job uses the text from before.")
        if "head" in job_request.changed:
            notes.append("The branch has moved since the request; the work started from its current state.")
        if overruled := self.config.overruled:
            notes.append(
                f"The operator of this server decides {', '.join(overruled)}; the repository's file has no say."
            )
        return [*notes, *context.notes]


def kind_of_request(
    job_request: JobRequest, request: str, prompt: Override | None = None, *, on_pull: bool
) -> KindDecision:
    """The kind of task requested; `request` replaces the request's own text."""
    places: dict[RequestAim, WorkType] = {"fix_checks": "checks", "rebase": "merge"}
    return kind_of(
        TaskSignals(
            title=one_line(visible(job_request.subject.title).text),
            request=request or job_request.text,
            labels=job_request.subject.labels,
            work=places.get(job_request.aim, "pull request" if on_pull else "issue"),
            requested_kind=job_request.options.kind,
            prompt=prompt.name if prompt else "",
            prompt_kind=prompt.kind if prompt else None,
        )
    )


def as_before(job_request: JobRequest, former: Job) -> JobRequest:
    """Repeat a former job or plan, with its settings unless the request sets others."""
    options = job_request.options
    attempts = options.attempts or (former.attempts if former.attempts > 1 else None)
    prompt = options.prompt or former.task.prompt or None
    kept = {"kind": options.kind or explicitly_requested_kind(former.task), "attempts": attempts, "prompt": prompt}
    return job_request.model_copy(update={"options": options.model_copy(update=kept)})


def repository_name(repo_context: RepositoryContext) -> str:
    return f"{repo_context.repository.owner}/{repo_context.repository.name}"


def _hidden(count: int, where: str) -> str:
    what = "1 hidden character was" if count == 1 else f"{count:,} hidden characters were"
    return f"{what} removed from {where}, so that the agent saw what you see."
