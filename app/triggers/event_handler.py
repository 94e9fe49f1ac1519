"""Handles one event: `app.triggers.rules` decides, this module acts, and a repeated event is recognised.

Effects are stored before the trigger counts as decided, each under a key that a repetition reuses: after a crash at any
point, the same event leads to the same single effect.
"""

import asyncio
from dataclasses import replace
from typing import assert_never

from app.config.prompt_overrides import DIRECTORY, own_prompt_names
from app.config.repository import SOURCE
from app.core.lessons import MAX_REMEMBERED, LessonDraft
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.models import BotAccount
from app.jobs.lessons import SqlLessonStore
from app.pipeline.lessons.learning import LessonRefusedError, check_remembered
from app.publish import replies
from app.triggers.change_notifications import ChangeNotifications
from app.triggers.commands import AgentCommand
from app.triggers.decisions import Decision, Ignored, IssueState, JobRequest, Notification, Reply
from app.triggers.event_facts import EventFacts, TriggerContext, make_trigger_context
from app.triggers.events import (
    ChecksFailed,
    CommentEvent,
    Event,
    InstallationChanged,
    LabelRemoved,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    StateChangeEvent,
    TriggerEvent,
)
from app.triggers.fact_loader import FactLoader, issue_behind
from app.triggers.github_clients import GitHubClients, RepositoryContext
from app.triggers.job_commands import JobCommands
from app.triggers.job_creator import JobCreator, ReplyPoster, StateChanged
from app.triggers.notifications import WORK_LABELS
from app.triggers.rules import PER_HOUR, command_of, decide, should_ignore
from app.triggers.stores import ServerDefaults, Stores


class LessonCommands:
    """Runs lesson commands of authorised people. Blocking; idempotent by the trigger's key."""

    def __init__(self, stores: Stores, reply_poster: ReplyPoster, *, kept: bool) -> None:
        self._stores = stores
        self._reply_poster = reply_poster
        self._kept = kept

    def answer(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        if not self._kept:
            return self._reply_poster.answer(trigger_context, "reply no_lessons", replies.reply(replies.NO_LESSONS))
        lessons = self._stores.lessons(trigger_context.repo_context.repository.id)
        if job_request.aim == "forget":
            return self._forget(lessons, job_request.lesson or 0, trigger_context)
        if not job_request.text.strip():
            return self._reply_poster.answer(trigger_context, "reply lessons", replies.lesson_list(lessons.all()))
        return self._remember(lessons, job_request.text, trigger_context)

    def reject_unmerged(self, event: PullRequestChanged, ours: int) -> int:
        """Delete what a job learned if its pull request was closed without merging."""
        if event.change != "closed" or event.merged or event.subject.author != ours or event.subject.head is None:
            return 0
        lessons, branch = self._stores.lessons(event.repository.id), event.subject.head.ref
        source_jobs = [job for job in lessons.source_jobs() if self._is_of(job, branch)]
        return sum(lessons.forget_job(job) for job in source_jobs)

    def _is_of(self, job: str, branch: str) -> bool:
        row = self._stores.job_store().get(job)
        return row is not None and branch in {row.job.branch, (row.result or {}).get("branch")}

    def _remember(self, lessons: SqlLessonStore, text: str, trigger_context: TriggerContext) -> str:
        try:
            draft = LessonDraft(
                text=check_remembered(text), kind="remembered", author=trigger_context.trigger.login or "somebody"
            )
        except LessonRefusedError as refused:
            return self._reply_poster.answer(
                trigger_context, "reply not_remembered", replies.not_remembered(str(refused))
            )
        lesson = lessons.remember(draft, trigger_context.trigger.key)
        if lesson is None:
            return self._reply_poster.answer(
                trigger_context, "reply not_remembered", replies.too_many_lessons(MAX_REMEMBERED)
            )
        return self._reply_poster.answer(trigger_context, f"remembered {lesson.number}", replies.remembered(lesson))

    def _forget(self, lessons: SqlLessonStore, number: int, trigger_context: TriggerContext) -> str:
        if lessons.forget(number, trigger_context.trigger.key):
            return self._reply_poster.answer(trigger_context, f"forgot {number}", replies.forgotten(number))
        words = replies.unknown_lesson(number, lessons.all())
        return self._reply_poster.answer(trigger_context, "reply unknown_lesson", words)


Local = TriggerEvent | StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged
"""Events of one repository."""
CAPS = frozenset({"checks_cap", "reviews_cap"})
"""Rules that end with a person being asked to take over."""
MAX_LOOKS = 3
"""How often an event is decided again because the state changed meanwhile."""


class EventHandler:
    """Handles events, one at a time or several in parallel."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, defaults: ServerDefaults) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._fact_loader = FactLoader(github_clients, stores, defaults.operator)
        self._reply_poster = ReplyPoster(stores)
        self._job_creator = JobCreator(stores, defaults, self._reply_poster)
        self._running_jobs = JobCommands(stores, self._job_creator, self._reply_poster, defaults.budget)
        self._lesson_commands = LessonCommands(stores, self._reply_poster, kept=defaults.lessons)
        self._change_notifications = ChangeNotifications(stores, self._job_creator, defaults.operator)
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
        if (known and should_ignore(event, command, known)) or (isinstance(event, TriggerEvent) and command is None):
            return "skip not_addressed"
        if isinstance(event, CommentEvent) and await asyncio.to_thread(self._is_flood, event, command):
            return "skip too_many: a flood"
        for _ in range(MAX_LOOKS):
            try:
                return await self._load_and_act(event, command)
            except StateChanged:
                continue
        return await self._load_and_act(event, command)

    def _is_flood(self, event: CommentEvent, command: AgentCommand | None) -> bool:
        """True if the actor exceeded the limit and was already told; asks GitHub nothing. A stop is always accepted."""
        if command is None or command.verb == "stop":
            return False
        return self._stores.triggers.recent_count(event.repository.id, event.actor.id) > PER_HOUR

    def take_new_installations(self) -> tuple[int, ...]:
        """New or restored installations, whose repositories should be polled."""
        installations, self._new_installations = tuple(sorted(self._new_installations)), set()
        return installations

    def take_closed(self) -> frozenset[int]:
        """Repositories in which a pull request was merged or closed, for which jobs may wait."""
        repositories, self._closed = frozenset(self._closed), set()
        return repositories

    async def _load_and_act(self, event: Local, command: AgentCommand | None) -> str:
        repo_context = await self._fact_loader.open(event)
        if repo_context is None:
            if isinstance(event, RepositoryChanged):
                return await self._handle_without_access(event)
            return "skip foreign_installation: the installation has no access to this repository"
        if skip := should_ignore(event, command, repo_context.ours):
            return f"skip {skip.rule}"
        if isinstance(event, TriggerEvent | ChecksFailed):
            return await self._answer_once(event, command, repo_context)
        if isinstance(event, PullRequestChanged):
            if event.change == "closed":
                self._closed.add(event.repository.id)
            await asyncio.to_thread(self._lesson_commands.reject_unmerged, event, repo_context.ours.user)
            await asyncio.to_thread(self._record_outcome, event)
        if isinstance(event, LabelRemoved) and event.label.casefold() in WORK_LABELS:
            return await self._cancel_once(event, repo_context)
        found = await self._fact_loader.about(event, command, repo_context)
        return await self._follow(self._decide(found), event, repo_context)

    def _record_outcome(self, event: PullRequestChanged) -> None:
        """Record the outcome of one of our pull requests; others have no row."""
        outcomes, repository, pull = self._stores.outcomes, event.repository.id, event.subject.number
        if event.change == "closed":
            outcomes.pull_closed(repository, pull, merged=event.merged, head=event.subject.head_commit)
        elif event.change == "reopened":
            outcomes.pull_reopened(repository, pull)

    async def _answer_once(
        self, event: TriggerEvent | ChecksFailed, command: AgentCommand | None, repo_context: RepositoryContext
    ) -> str:
        trigger = await self._fact_loader.identify(event, command, repo_context)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"
        found = await self._fact_loader.about(event, command, repo_context, trigger)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"  # the other path started its job meanwhile
        decision = self._decide(found)
        trigger_context = make_trigger_context(repo_context, trigger, found)
        if isinstance(event, ChecksFailed):
            return await self._fix_checks(event, decision, trigger_context)
        return await self._act(decision, trigger_context)

    async def _cancel_once(self, event: LabelRemoved, repo_context: RepositoryContext) -> str:
        """Removing our label means stop, also for requests that were made before but arrive later."""
        trigger = await self._fact_loader.identify(event, None, repo_context)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"
        found = await self._fact_loader.about(event, None, repo_context, trigger)
        outcome = await self._follow(self._decide(found), event, repo_context)
        back_on = event.label.casefold() in {label.casefold() for label in found.state.labels}
        trigger = replace(trigger, verb="relabel" if back_on else "stop")
        trigger_context = TriggerContext(repo_context, trigger, found)
        return await asyncio.to_thread(self._reply_poster.decide, trigger_context, outcome)

    def _decide(self, found: EventFacts) -> Decision:
        return decide(found, now=self._stores.clock())

    async def _handle_without_access(self, event: InstallationChanged | RepositoryChanged) -> str:
        """Handle an event of an installation or repository without asking GitHub, because access may be gone."""
        bot = self._github_clients.known or BotAccount(user=0)
        found = EventFacts(event, None, bot, IssueState(installation=event.installation))
        return await self._follow(self._decide(found), event, None)

    async def _follow(self, decision: Decision, event: Event, repo_context: RepositoryContext | None) -> str:
        if isinstance(decision, Notification) and decision.aim == "reconcile":
            self._new_installations.add(decision.installation)
        if isinstance(decision, Notification):
            notified = await self._change_notifications.follow(decision, event, repo_context)
            return f"{decision.rule}: {notified}"
        if isinstance(decision, Ignored):
            return f"skip {decision.rule}: {decision.reason}"
        raise TypeError(f"nobody asked for {type(decision).__name__}")

    async def _act(self, decision: Decision, trigger_context: TriggerContext) -> str:
        match decision:
            case JobRequest():
                return await self._carry_out_or_reply(decision, trigger_context)
            case Reply(rule="unclear_command"):
                paths = await trigger_context.repo_context.reader.files_in(DIRECTORY)
                words = replies.unclear_command(decision.text, decision.suggestion, own_prompt_names(paths))
                outcome = f"reply {decision.rule}"
                return await asyncio.to_thread(self._reply_poster.answer, trigger_context, outcome, words)
            case Reply():
                return await asyncio.to_thread(self._reply, decision, trigger_context)
            case Ignored():
                return await asyncio.to_thread(self._skip, decision, trigger_context)
        raise TypeError(f"a trigger is no {type(decision).__name__}")

    async def _carry_out_or_reply(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        """Reply with permanent errors to the person who asked; temporary ones are raised and retried."""
        if locked := job_request.options.locked_by(self._operator):
            words = replies.refused(f"The server's operator has locked `{locked}`; remove that option.")
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply locked", words)
        try:
            return await self._carry_out(job_request, trigger_context)
        except (NeedsHumanAction, NoAccess) as error:
            words = replies.forge_refusal(error.message, error.hint)
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "reply in_the_way", words)

    async def _carry_out(self, job_request: JobRequest, trigger_context: TriggerContext) -> str:
        if job_request.aim in {"retry", "rebase", "ci"} and (issue := issue_behind(trigger_context)):
            words = replies.refused(f"This draft was opened early; work on it continues in #{issue}.")
            return await asyncio.to_thread(self._reply_poster.answer, trigger_context, "skip early_draft", words)
        match job_request.aim:
            case "fix" | "plan" | "ask" | "fix_checks" | "revise":
                return await self._job_creator.start(job_request, trigger_context)
            case "retry" | "allow":
                return await self._job_creator.restart(job_request, trigger_context)
            case "rebase" | "ci":
                return await self._job_creator.move(job_request, trigger_context)
            case "remember" | "forget":
                return await asyncio.to_thread(self._lesson_commands.answer, job_request, trigger_context)
            case "steer" | "answer" | "approve" | "continue" | "stop" | "status":
                return await self._running_jobs.handle(job_request, trigger_context)
        assert_never(job_request.aim)

    async def _fix_checks(self, event: ChecksFailed, decision: Decision, trigger_context: TriggerContext) -> str:
        """Start a job for failing checks. Checks fail one by one, so a reason to wait is not a final decision."""
        if isinstance(decision, JobRequest):
            reader = trigger_context.repo_context.reader
            if event.source == "check_run" and not await reader.failed_checks(event.head_sha):
                return "skip checks: some are still running"
            return await self._job_creator.start(decision, trigger_context)
        if isinstance(decision, Ignored) and decision.visible:
            return await asyncio.to_thread(self._skip, decision, trigger_context)
        return await self._follow(decision, event, trigger_context.repo_context)

    def _reply(self, decision: Reply, trigger_context: TriggerContext) -> str:
        outcome = f"reply {decision.rule}"
        match decision.rule:
            case "broken_config":
                words = replies.broken_config(decision.text, SOURCE)
                return self._reply_poster.answer(trigger_context, outcome, words, once_for=decision.text)
            case _:
                words = replies.reply(decision.text, decision.suggestion)
        return self._reply_poster.answer(trigger_context, outcome, words)

    def _skip(self, decision: Ignored, trigger_context: TriggerContext) -> str:
        outcome = f"skip {decision.rule}: {decision.reason}"
        if decision.rule == "foreign_installation":
            return outcome  # posted by a server that does not serve this repository, so it decides nothing
        if decision.visible:
            if decision.rule in CAPS:
                self._reply_poster.request_attention(trigger_context)
                return self._reply_poster.answer(trigger_context, outcome, replies.reply(decision.reason))
            words = replies.refused(decision.reason)
            return self._reply_poster.answer(trigger_context, outcome, words)
        return self._reply_poster.decide(trigger_context, outcome)
