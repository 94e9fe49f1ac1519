"""Handles one event: `app.triggers.rules` decides, this module acts, and a repeated event is recognised.

Effects are stored before the trigger counts as decided, each under a key that a repetition reuses: after a crash at any
point, the same event leads to the same single effect. So commands for an existing job are carried out once, in order.
"""

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from app.config.repository import DIRECTORY, SOURCE, OperatorDefaults, RepoConfig, own_prompt_names
from app.core.errors import AgentFixError
from app.core.lessons import MAX_REMEMBERED, LessonDraft
from app.core.plan import Plan, parse_plan_file, render_plan_file
from app.core.text import clip, one_line
from app.github.base import NeedsHumanAction, NoAccess
from app.github.models import BotAccount, PullRequest
from app.jobs.context import reaction_target
from app.jobs.job_actions import raised_budget
from app.jobs.store import JobWithContext
from app.jobs.trigger_log import JobMessage, MessageKind, Trigger
from app.pipeline.lessons.learning import LessonRefusedError, check_remembered
from app.publish import replies
from app.publish.effects import AddReaction, ChangeLabels, Effect, UpdateStatusComment, key_of
from app.publish.outbox import name_without_job
from app.publish.status_text import read_plan
from app.triggers.commands import AgentCommand
from app.triggers.decisions import (
    Decision,
    EventFacts,
    Ignored,
    IssueState,
    JobRequest,
    Notification,
    Reply,
    TriggerAnswer,
    TriggerContext,
)
from app.triggers.events import (
    ChecksFailed,
    CommentEvent,
    Event,
    EventSubject,
    InstallationChanged,
    LabelRemoved,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    StateChangeEvent,
    TriggerEvent,
    conflict_key,
)
from app.triggers.fact_loader import FactLoader, issue_behind, read_config
from app.triggers.github_clients import GitHubClients, RepositoryContext
from app.triggers.job_creator import JobCreator, RetryLater, StateChanged, as_before
from app.triggers.prompt_context import comments_in, is_about, is_asking, refs_of, review_of
from app.triggers.rules import PER_HOUR, WORK_LABELS, command_of, decide, should_ignore
from app.triggers.stores import ServerDefaults, Stores

_COMMENT = re.compile(r"#issuecomment-([0-9]+)$")
MAX_SAID = 20_000
"""Characters of one message to a job."""


class JobCommands:
    """Passes commands to active jobs. Returns the outcome if it is stored already, or a TriggerAnswer."""

    def __init__(self, stores: Stores, job_creator: JobCreator) -> None:
        self._stores = stores
        self._job_creator = job_creator

    async def handle(  # noqa: PLR0911  # one case a command
        self, request: JobRequest, context: TriggerContext
    ) -> str | TriggerAnswer:
        """Handle any command for a job."""
        job = context.found.job
        if job is None:
            if request.aim != "status":
                raise StateChanged("The job no longer exists.")
            return TriggerAnswer("reply no_job", replies.no_job())
        match request.aim:
            case "steer":
                return await self._steer(request, context, job)
            case "answer":
                text = await self._message_text(request, context, job)
                return await asyncio.to_thread(self._resume, request, context, job, "answer", text)
            case "approve":
                return await self._approve(request, context, job)
            case "continue":
                options = request.options
                if options.budget is None and options.extra is None and job.waiting_for == "money":
                    problem, command = (
                        "Its budget is spent; say how much more it may cost.",
                        "/agent continue --budget +3",
                    )
                    return TriggerAnswer("reply budget", replies.reply(problem, command))
                return await asyncio.to_thread(self._resume, request, context, job, "continue", request.text)
            case "stop":
                return await asyncio.to_thread(self._stop, request, context, job)
            case "status":
                address = await asyncio.to_thread(status_address, job.job.id, self._stores)
                words = replies.status(job.job.id, job.row.state, job.row.reason, address)
                return TriggerAnswer(f"status {job.job.id}", words)
        raise ValueError(f"{request.aim} is no command for a job")

    async def _steer(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str | TriggerAnswer:
        """Store a message: the agent gets it at its next turn, or when a paused job resumes."""
        if job.handed_over:
            raise RetryLater("The job is publishing its result and no longer reads messages.")
        text = await self._message_text(request, context, job)
        if not text:
            return TriggerAnswer("skip busy", replies.refused("A job is already working on it."))
        await asyncio.to_thread(self._add_message, request, context, job, text)
        outcome = f"steer {job.job.id}"
        if job.row.state == "awaiting_approval":
            return TriggerAnswer(outcome, replies.message_noted(job.row.state))
        await asyncio.to_thread(self._stores.triggers.record, context.trigger, outcome, job.job.id)
        return outcome

    async def _message_text(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str:
        """The message, with the lines of the diff it is about; the job will reply in those threads too."""
        review = review_of(request)
        if request.thread is None and not review:
            return request.text
        threads = await context.repo.reader.review_threads(
            context.trigger.number, context.trigger.at, including=is_asking(request), review=review
        )
        refs = refs_of(each for each in threads if not each.resolved and is_about(request, each))
        if refs and job.job_context.publish_target != "nowhere":
            await asyncio.to_thread(self._stores.job_queries.join_threads, job.job.id, refs)
        if request.thread is not None:
            return _on_line(request.text, request.thread.path, request.thread.end)
        lines = [_on_line(text, thread.path, thread.line) for thread, text in comments_in(threads, review)]
        return clip("\n\n".join(text for text in (request.text, *lines) if text.strip()), MAX_SAID)

    async def _approve(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str | TriggerAnswer:
        edited = await self._edited_plan(context, job)
        if isinstance(edited, TriggerAnswer):
            return edited
        plan, editor = edited
        if job.row.state == "awaiting_approval":
            text = await asyncio.to_thread(self._newest_plan, job, plan, editor)
            return await asyncio.to_thread(self._resume, request, context, job, "approve", text)
        plan = plan or render_plan_file(Plan.model_validate((job.row.result or {})["plan"]))
        changes = {"aim": "fix", "text": request.text or job.job.task.request}
        begin = as_before(request.model_copy(update=changes), job.job)
        return await self._job_creator.start(begin, context, plan_file=plan)

    async def _edited_plan(self, context: TriggerContext, job: JobWithContext) -> tuple[str, str] | TriggerAnswer:
        """The plan as edited in the status comment, and by whom: what people see there is what they approve.

        Both are empty if nobody edited it; a TriggerAnswer says why it cannot be approved.
        """
        reader = context.repo.reader
        found = _COMMENT.search(await asyncio.to_thread(status_address, job.job.id, self._stores))
        edit = await reader.comment_edit(int(found[1])) if found else None
        if edit is None or not edit.editor_name or edit.editor == context.repo.ours.user:
            return "", ""
        text = read_plan(edit.body)
        if text is None:
            return "", ""
        if edit.edited_at is not None and edit.edited_at > context.trigger.at:
            return TriggerAnswer("reply plan", replies.plan_edited_since())
        if not await reader.may_write(edit.editor):
            return TriggerAnswer("reply plan", replies.plan_edited_by_stranger(edit.editor_name))
        try:
            parse_plan_file(text)
        except AgentFixError as error:
            return TriggerAnswer("reply plan", replies.unreadable_plan(error.message))
        return text, edit.editor_name

    def _newest_plan(self, job: JobWithContext, edited: str, editor: str) -> str:
        """The plan as edited in the comment, which becomes a version, or as edited through the API."""
        if edited:
            self._stores.plans.record(job.job.id, parse_plan_file(edited), editor)
        return edited or self._stores.plans.edited_text(job.job.id)

    def _resume(
        self, request: JobRequest, context: TriggerContext, job: JobWithContext, kind: MessageKind, text: str
    ) -> str | TriggerAnswer:
        """Resume the job, and store the message and the trigger with it."""
        trigger, outcome, changed = context.trigger, f"{kind} {job.job.id}", None
        self._acknowledge(request, context)
        if kind == "continue":
            raised = raised_budget(job, request.options.budget, request.options.extra)
            changed = job.job.model_copy(update={"budget": raised})
        message = JobMessage(kind, trigger.key, trigger.login, text)
        if self._stores.queue.resume(job.job.id, changed, message=message, trigger=trigger, outcome=outcome):
            return outcome
        if self._stores.triggers.decided(trigger.key):
            return "decided before"
        words = replies.reply("The job has continued or ended in the meantime.", "/agent status")
        return TriggerAnswer("reply too_late", words)

    def _stop(self, request: JobRequest, context: TriggerContext, job: JobWithContext) -> str:
        """Stop the job and the questions that are being answered beside it."""
        reason, trigger, queue = f"Stopped by {context.trigger.login}.", context.trigger, self._stores.queue
        self._acknowledge(request, context)
        for each in self._stores.job_queries.active_jobs(repository=context.repo.repository.id):
            if each.job_context.issue_ref.number == trigger.number and each.job.id != job.job.id:
                queue.stop(each.job.id, reason)
        queue.stop(job.job.id, reason, trigger=trigger)
        return f"stop {job.job.id}"

    def _add_message(self, request: JobRequest, context: TriggerContext, job: JobWithContext, text: str) -> None:
        key, who = context.trigger.key, context.trigger.login
        self._stores.messages.add(job.job.id, "steer", key=key, who=who, text=text)
        self._acknowledge(request, context)

    def _acknowledge(self, request: JobRequest, context: TriggerContext) -> None:
        """Add 👀 to what was written, if it accepts reactions."""
        target = reaction_target(request.trigger, context.trigger.number)
        if target is not None and not context.promised_job:
            seen = AddReaction(target=target, content="eyes")
            self._stores.outbox.add(name_without_job(context.trigger.key), 0, context.issue_ref, seen)


def status_address(job: str, stores: Stores) -> str:
    """The URL of the status comment; empty if there is none yet."""
    status = stores.outbox.status(key_of(job, UpdateStatusComment(body="")))
    return status.receipt.url if status and status.receipt else ""


def _on_line(text: str, path: str, line: int | None) -> str:
    where = f"{one_line(path)}:{line}" if line is not None else one_line(path)
    return f"(about {where})\n{text}" if text.strip() else ""


CALLED_OFF = {
    "unlabelled": "Its label was removed.",
    "issue_closed": "The issue was closed.",
    "issue_deleted": "The issue was deleted.",
    "issue_transferred": "The issue was moved to another repository.",
    "pull_request_closed": "The pull request was closed.",
}
NO_ACCESS = "The App no longer has access to this repository."
EDITED = "The description was edited; the job continues with the text from when it was requested."
MOVED = "The repository was renamed or transferred; the job continues."
PUSHED = "Someone pushed to the branch; agent-fix keeps their commits."


@dataclass(frozen=True, slots=True)
class ChangeNotifications:
    """Handles notifications; each may be handled twice."""

    stores: Stores
    job_creator: JobCreator
    operator: OperatorDefaults
    post_and_record: Callable[[TriggerContext, TriggerAnswer], Awaitable[str]]

    async def follow(self, notification: Notification, event: Event, repo: RepositoryContext | None) -> str:
        """Handle a notification; `repo` is given if we have access to the repository."""
        match notification.aim:
            case "head_moved":
                noted = await asyncio.to_thread(self._note, notification, PUSHED) if notification.job else "noted 0"
                if repo is None or notification.number is None:
                    return noted
                pull = await repo.reader.pull_request(notification.number)
                return f"{noted}; {await self._resolve([pull] if pull else [], event, repo)}"
            case "base_moved":
                # If none of our pull requests can have this base, it costs only a database query.
                has_jobs = self.stores.job_queries.has_jobs_in
                if repo is None or not await asyncio.to_thread(has_jobs, repo.repository.id):
                    return "no job"
                pulls = await repo.reader.open_pull_requests(base=notification.branch)
                return await self._resolve(pulls, event, repo)
            case _:
                return await asyncio.to_thread(self._notify, notification, open_to_us=repo is not None)

    def _notify(self, notification: Notification, *, open_to_us: bool) -> str:
        match notification.aim:
            case "stop":
                reason, meant = CALLED_OFF.get(notification.rule, "It was cancelled."), self._meant(notification)
                for each in meant:
                    self.stores.queue.stop(each.job.id, reason)
                return f"stopped {len(meant)}"
            case "edited":
                return self._note(notification, EDITED)
            case "moved" if open_to_us:
                return self._note(notification, MOVED)
            case "no_access" | "moved":
                # At once, without waiting for their processes, because nothing can be posted there any more.
                end, meant = self.stores.queue.end, self._meant(notification)
                return f"no access {sum(end(each.job.id, 'no_access', NO_ACCESS) for each in meant)}"
        return notification.aim

    def _note(self, notification: Notification, text: str) -> str:
        jobs, store = self._meant(notification), self.stores.job_store()
        for each in jobs:
            if not any(row.kind == "note" and row.text == text for row in store.progress_since(each.job.id)):
                store.add_progress(each.job.id, "note", text)
        return f"noted {len(jobs)}"

    def _meant(self, notification: Notification) -> list[JobWithContext]:
        return [
            each
            for each in self.stores.job_queries.active_jobs(installation=notification.installation)
            if not notification.repositories or each.job_context.issue_ref.repository in notification.repositories
            if notification.number in {None, each.job_context.issue_ref.number} or each.job.id == notification.job
        ]

    async def _resolve(self, pulls: Iterable[PullRequest], event: Event, repo: RepositoryContext) -> str:
        """Start to resolve the conflicts of our own pull requests, if the repository allows it."""
        ours = [each for each in pulls if each.author == repo.ours.user and each.open]
        if not ours:
            return "not a pull request of the bot"
        config = await read_config(repo.reader, self.operator)
        if not isinstance(config, RepoConfig) or not config.iterate.conflicts:
            return "people resolve conflicts here"
        started = [await self._resolve_one(each.number, config, event, repo) for each in ours]
        return f"conflicts: {', '.join(started)}"

    async def _resolve_one(self, number: int, config: RepoConfig, event: Event, repo: RepositoryContext) -> str:
        pull = await repo.reader.pull_request(number)  # GitHub reports mergeability only for a single pull request
        repository, queries = repo.repository.id, self.stores.job_queries
        if pull is not None and pull.open and pull.head_repository == repository and pull.mergeable is None:
            raise RetryLater(f"GitHub does not know yet whether #{number} can be merged.")
        if pull is None or not pull.open or pull.head_repository != repository or pull.mergeable:
            return "none"
        if await asyncio.to_thread(queries.active, repository, number) is not None:
            return "not now"
        if await asyncio.to_thread(queries.follow_up_count, repository, number) >= config.iterate.max:
            return "not now"
        tip = await repo.reader.head(pull.base_branch)
        key = conflict_key(repository, number, pull.head, tip or pull.base)
        if await asyncio.to_thread(self.stores.triggers.decided, key):
            return "known"
        trigger = Trigger(key, repository, number, repo.ours.user, "rebase", self.stores.clock())
        found = EventFacts(event, None, repo.ours, IssueState(), config, pull=pull)
        context = TriggerContext(repo, trigger, found)
        try:
            outcome = await self.job_creator.move(_conflict_request(pull), context)
        except StateChanged:
            return "not now"
        return await self.post_and_record(context, outcome) if isinstance(outcome, TriggerAnswer) else outcome


def _conflict_request(pull: PullRequest) -> JobRequest:
    return JobRequest(
        aim="rebase",
        subject=EventSubject(
            number=pull.number,
            is_pull_request=True,
            title=pull.title,
            body=pull.body,
            author=pull.author or None,
        ),
        trigger=f"conflicts:{pull.head[:20]}",
        destination="same_branch",
    )


class LessonCommands:
    """Runs lesson commands of authorised people. Blocking; idempotent by the trigger's key."""

    def __init__(self, stores: Stores, *, kept: bool) -> None:
        self._stores = stores
        self._kept = kept

    def handle(self, request: JobRequest, context: TriggerContext) -> TriggerAnswer:  # noqa: PLR0911  # one for each reason
        if not self._kept:
            return TriggerAnswer("reply no_lessons", replies.reply(replies.NO_LESSONS))
        lessons, key = self._stores.lessons(context.repo.repository.id), context.trigger.key
        if request.aim == "forget":
            number = request.lesson or 0
            if lessons.forget(number, key):
                return TriggerAnswer(f"forgot {number}", replies.forgotten(number))
            return TriggerAnswer("reply unknown_lesson", replies.unknown_lesson(number, lessons.all()))
        if not request.text.strip():
            return TriggerAnswer("reply lessons", replies.lesson_list(lessons.all()))
        try:
            text = check_remembered(request.text)
        except LessonRefusedError as refused:
            return TriggerAnswer("reply not_remembered", replies.not_remembered(str(refused)))
        draft = LessonDraft(text=text, kind="remembered", author=context.trigger.login or "somebody")
        lesson = lessons.remember(draft, key)
        if lesson is None:
            return TriggerAnswer("reply not_remembered", replies.too_many_lessons(MAX_REMEMBERED))
        return TriggerAnswer(f"remembered {lesson.number}", replies.remembered(lesson))

    def reject_unmerged(self, event: PullRequestChanged, ours: int) -> None:
        """Delete what a job learned if its pull request was closed without merging."""
        if event.change != "closed" or event.merged or event.subject.author != ours or event.subject.head is None:
            return
        lessons = self._stores.lessons(event.repository.id)
        for job in lessons.source_jobs():
            row = self._stores.job_store().get(job)
            if row is not None and event.subject.head.ref in {row.job.branch, (row.result or {}).get("branch")}:
                lessons.forget_job(job)


Local = TriggerEvent | StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged
"""Events of one repository."""
CAPS = frozenset({"checks_cap", "reviews_cap"})
"""Rules that end with a person being asked to take over."""
NEEDS_HUMAN = "agent-needs-human"
MAX_LOOKS = 3
"""How often an event is decided again because the state changed meanwhile."""


class EventHandler:
    """Handles events, one at a time or several in parallel."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, defaults: ServerDefaults) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._fact_loader = FactLoader(github_clients, stores, defaults.operator)
        self._job_creator = JobCreator(stores, defaults)
        self._running_jobs = JobCommands(stores, self._job_creator)
        self._lesson_commands = LessonCommands(stores, kept=defaults.lessons)
        self._change_notifications = ChangeNotifications(
            stores, self._job_creator, defaults.operator, self._post_and_record
        )
        self._operator = defaults.operator
        self._new_installations: set[int] = set()
        self._closed: set[int] = set()

    async def handle(self, event: Event) -> str:
        """Handle an event and return a short outcome.

        Raises GitHub errors, and RetryLater if something else must end first.
        """
        if isinstance(event, InstallationChanged):
            return await self._handle_without_access(event)
        known, command = self._github_clients.known, command_of(event)
        if known and (skip := should_ignore(event, command, known)):
            return f"skip {skip.rule}"
        if isinstance(event, TriggerEvent) and command is None:
            return "skip not_addressed"
        if isinstance(event, CommentEvent) and command is not None and command.verb != "stop":
            # Whoever exceeded the limit was told once; from then on GitHub is asked nothing.
            recent = self._stores.triggers.recent_count
            if await asyncio.to_thread(recent, event.repository.id, event.actor.id) > PER_HOUR:
                return "skip too_many: a flood"
        for _ in range(MAX_LOOKS):
            try:
                return await self._load_and_act(event, command)
            except StateChanged:
                continue
        return await self._load_and_act(event, command)

    def take_new_installations(self) -> tuple[int, ...]:
        """New or restored installations, whose repositories should be polled."""
        installations, self._new_installations = tuple(sorted(self._new_installations)), set()
        return installations

    def take_closed(self) -> frozenset[int]:
        """Repositories in which a pull request was merged or closed, for which jobs may wait."""
        repositories, self._closed = frozenset(self._closed), set()
        return repositories

    async def _load_and_act(self, event: Local, command: AgentCommand | None) -> str:
        repo = await self._fact_loader.open(event)
        if repo is None:
            if isinstance(event, RepositoryChanged):
                return await self._handle_without_access(event)
            return "skip foreign_installation: the installation has no access to this repository"
        if skip := should_ignore(event, command, repo.ours):
            return f"skip {skip.rule}"
        if isinstance(event, TriggerEvent | ChecksFailed):
            return await self._answer_once(event, command, repo)
        if isinstance(event, PullRequestChanged):
            if event.change == "closed":
                self._closed.add(event.repository.id)
            await asyncio.to_thread(self._lesson_commands.reject_unmerged, event, repo.ours.user)
            await asyncio.to_thread(self._record_outcome, event)
        if isinstance(event, LabelRemoved) and event.label.casefold() in WORK_LABELS:
            return await self._cancel_once(event, repo)
        found = await self._fact_loader.about(event, command, repo)
        return await self._follow(self._decide(found), event, repo)

    def _record_outcome(self, event: PullRequestChanged) -> None:
        """Record the outcome of one of our pull requests; others have no row."""
        outcomes, repository, pull = self._stores.outcomes, event.repository.id, event.subject.number
        if event.change == "closed":
            head = event.subject.head.sha if event.subject.head else ""
            outcomes.pull_closed(repository, pull, merged=event.merged, head=head)
        elif event.change == "reopened":
            outcomes.pull_reopened(repository, pull)

    async def _answer_once(
        self, event: TriggerEvent | ChecksFailed, command: AgentCommand | None, repo: RepositoryContext
    ) -> str:
        trigger = await self._fact_loader.identify(event, command, repo)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"
        found = await self._fact_loader.about(event, command, repo, trigger)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"  # the other path started its job meanwhile
        decision = self._decide(found)
        if found.requester:
            trigger = replace(trigger, login=found.requester.login)  # the current one
        if isinstance(event, ChecksFailed) and found.pull:
            trigger = replace(trigger, number=found.pull.number)
        context = TriggerContext(repo, trigger, found)
        if not isinstance(event, ChecksFailed):
            outcome = await self._act(decision, context)
        elif isinstance(decision, JobRequest):
            if event.source == "check_run" and not await repo.reader.failed_checks(event.head_sha):
                return "skip checks: some are still running"
            outcome = await self._job_creator.start(decision, context)
        elif isinstance(decision, Ignored) and decision.visible:
            outcome = await self._act(decision, context)
        else:  # checks fail one by one, so a reason to wait is not a final decision
            return await self._follow(decision, event, repo)
        return await self._post_and_record(context, outcome) if isinstance(outcome, TriggerAnswer) else outcome

    async def _cancel_once(self, event: LabelRemoved, repo: RepositoryContext) -> str:
        """Removing our label means stop, also for requests that were made before but arrive later."""
        trigger = await self._fact_loader.identify(event, None, repo)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"
        found = await self._fact_loader.about(event, None, repo, trigger)
        outcome = await self._follow(self._decide(found), event, repo)
        trigger = replace(trigger, verb="relabel" if event.label.casefold() in found.labels else "stop")
        return await self._post_and_record(TriggerContext(repo, trigger, found), TriggerAnswer(outcome))

    def _decide(self, found: EventFacts) -> Decision:
        return decide(found, now=self._stores.clock())

    async def _handle_without_access(self, event: InstallationChanged | RepositoryChanged) -> str:
        """Handle an event of an installation or repository without asking GitHub, because access may be gone."""
        bot = self._github_clients.known or BotAccount(user=0)
        return await self._follow(self._decide(EventFacts(event, None, bot, IssueState())), event, None)

    async def _follow(self, decision: Decision, event: Event, repo: RepositoryContext | None) -> str:
        if isinstance(decision, Notification):
            if decision.aim == "reconcile":
                self._new_installations.add(decision.installation)
            return f"{decision.rule}: {await self._change_notifications.follow(decision, event, repo)}"
        if isinstance(decision, Ignored):
            return f"skip {decision.rule}: {decision.reason}"
        raise TypeError(f"nobody asked for {type(decision).__name__}")

    async def _act(  # noqa: PLR0911  # one case a kind
        self, decision: Decision, context: TriggerContext
    ) -> str | TriggerAnswer:
        match decision:
            case JobRequest():
                if locked := decision.options.locked_by(self._operator):
                    words = replies.refused(f"The server's operator has locked `{locked}`; remove that option.")
                    return TriggerAnswer("reply locked", words)
                try:
                    return await self._carry_out(decision, context)
                except (NeedsHumanAction, NoAccess) as error:  # permanent; temporary ones are raised and retried
                    return TriggerAnswer("reply in_the_way", replies.forge_refusal(error.message, error.hint))
            case Reply():
                words = replies.reply(decision.text, decision.suggestion)
                if decision.rule == "unclear_command":
                    paths = await context.repo.reader.files_in(DIRECTORY)
                    words = replies.unclear_command(decision.text, decision.suggestion, own_prompt_names(paths))
                elif decision.rule == "broken_config":
                    words = replies.broken_config(decision.text, SOURCE)
                    return TriggerAnswer("reply broken_config", words, once_for=decision.text)
                return TriggerAnswer(f"reply {decision.rule}", words)
            case Ignored():
                outcome = f"skip {decision.rule}: {decision.reason}"
                if decision.rule not in CAPS:
                    return TriggerAnswer(outcome, replies.refused(decision.reason) if decision.visible else "")
                needs_human = ChangeLabels(add=(NEEDS_HUMAN,))
                await asyncio.to_thread(self._add_effect, context.trigger.key, context, needs_human)
                return TriggerAnswer(outcome, replies.reply(decision.reason))
        raise TypeError(f"a trigger is no {type(decision).__name__}")

    async def _carry_out(self, request: JobRequest, context: TriggerContext) -> str | TriggerAnswer:
        if request.aim in {"retry", "rebase", "ci"} and (issue := issue_behind(context)):
            words = replies.refused(f"This draft was opened early; work on it continues in #{issue}.")
            return TriggerAnswer("skip early_draft", words)
        match request.aim:
            case "fix" | "plan" | "ask" | "fix_checks" | "revise":
                return await self._job_creator.start(request, context)
            case "retry" | "allow":
                return await self._job_creator.restart(request, context)
            case "rebase" | "ci":
                return await self._job_creator.move(request, context)
            case "remember" | "forget":
                return await asyncio.to_thread(self._lesson_commands.handle, request, context)
            case "steer" | "answer" | "approve" | "continue" | "stop" | "status":
                return await self._running_jobs.handle(request, context)
        assert_never(request.aim)

    async def _post_and_record(self, context: TriggerContext, answer: TriggerAnswer) -> str:
        return await asyncio.to_thread(self._post_and_record_now, context, answer)

    def _post_and_record_now(self, context: TriggerContext, answer: TriggerAnswer) -> str:
        """Post the reply, then store the trigger's outcome. Blocking and idempotent."""
        if answer.words and context.promised_job:
            self._stores.requests.end(context.promised_job, "stopped", answer.words)
        elif answer.words:
            key = context.trigger.key
            if answer.once_for:
                digest = hashlib.sha256(answer.once_for.encode()).hexdigest()[:16]
                key = f"r{context.repo.repository.id}#{context.trigger.number}/told:{digest}"
            self._add_effect(key, context, UpdateStatusComment(body=answer.words))
        self._stores.triggers.record(context.trigger, answer.outcome, "")
        return answer.outcome

    def _add_effect(self, key: str, context: TriggerContext, effect: Effect) -> None:
        self._stores.outbox.add(name_without_job(key), 0, context.issue_ref, effect)
