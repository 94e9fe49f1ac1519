"""Handles one event: `app.triggers.rules` decides, this module acts, and a repeated event is recognised.

Effects are stored before the trigger counts as decided, each under a key that a repetition reuses: after a crash at any
point, the same event leads to the same single effect. So commands for an existing job are carried out once, in order.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from app.config.repository import SOURCE, OperatorDefaults, RepoConfig
from app.github.base import NeedsHumanAction, NoAccess
from app.github.models import BotAccount, PullRequest
from app.jobs.store import JobWithContext
from app.jobs.trigger_log import Trigger
from app.publish import replies
from app.publish.effects import ChangeLabels, Effect, UpdateStatusComment
from app.publish.outbox import name_without_job
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
from app.triggers.fact_loader import FactLoader
from app.triggers.github_clients import GitHubClients, RepositoryContext, read_config
from app.triggers.handlers import HANDLERS
from app.triggers.handlers.base import CommandCall
from app.triggers.handlers.lessons import forget_unmerged
from app.triggers.handlers.rebase import merge_base_branch
from app.triggers.handlers.verify import verify_again
from app.triggers.job_creator import JobCreator, RetryLater, StateChanged
from app.triggers.rules import PER_HOUR, WORK_LABELS, command_of, decide, handler_of, should_ignore
from app.triggers.stores import ServerDefaults, Stores

STOP_REASONS = {
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

    async def handle(self, notification: Notification, event: Event, repo: RepositoryContext | None) -> str:
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
                reason, meant = STOP_REASONS.get(notification.rule, "It was cancelled."), self._jobs_of(notification)
                for each in meant:
                    self.stores.queue.stop(each.job.id, reason)
                return f"stopped {len(meant)}"
            case "edited":
                return self._note(notification, EDITED)
            case "moved" if open_to_us:
                return self._note(notification, MOVED)
            case "no_access" | "moved":
                # At once, without waiting for their processes, because nothing can be posted there any more.
                end, meant = self.stores.queue.end, self._jobs_of(notification)
                return f"no access {sum(end(each.job.id, 'no_access', NO_ACCESS) for each in meant)}"
        return notification.aim

    def _note(self, notification: Notification, text: str) -> str:
        jobs, store = self._jobs_of(notification), self.stores.job_store()
        for each in jobs:
            if not any(row.kind == "note" and row.text == text for row in store.progress_since(each.job.id)):
                store.add_progress(each.job.id, "note", text)
        return f"noted {len(jobs)}"

    def _jobs_of(self, notification: Notification) -> list[JobWithContext]:
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
        facts = EventFacts(event, None, repo.ours, IssueState(), config, pull=pull)
        context = TriggerContext(repo, trigger, facts)
        try:
            outcome = await merge_base_branch(_conflict_request(pull), context, self.job_creator)
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


EventInRepository = TriggerEvent | StateChangeEvent | ChecksFailed | Pushed | RepositoryChanged
"""Events of one repository."""
CAPS = frozenset({"checks_cap", "reviews_cap"})
"""Rules that end with a person being asked to take over."""
NEEDS_HUMAN = "agent-needs-human"
MAX_DECISIONS = 3
"""How often an event is decided again because the state changed meanwhile."""


class EventHandler:
    """Handles events, one at a time or several in parallel."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, defaults: ServerDefaults) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._fact_loader = FactLoader(github_clients, stores, defaults.operator)
        self._job_creator = JobCreator(stores, defaults)
        self._change_notifications = ChangeNotifications(
            stores, self._job_creator, defaults.operator, self._post_and_record
        )
        self._defaults = defaults
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
        if isinstance(event, CommentEvent) and command is not None and not HANDLERS[command.verb].ends_work:
            # Whoever exceeded the limit was told once; from then on GitHub is asked nothing.
            recent = self._stores.triggers.recent_count
            if await asyncio.to_thread(recent, event.repository.id, event.actor.id) > PER_HOUR:
                return "skip too_many: a flood"
        for _ in range(MAX_DECISIONS):
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

    async def _load_and_act(self, event: EventInRepository, command: AgentCommand | None) -> str:
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
            await asyncio.to_thread(forget_unmerged, event, repo.ours.user, self._stores)
            await asyncio.to_thread(self._record_outcome, event)
        if isinstance(event, LabelRemoved) and event.label.casefold() in WORK_LABELS:
            return await self._cancel_once(event, repo)
        facts = await self._fact_loader.about(event, command, repo)
        outcome = await self._apply_notification(self._decide(facts), event, repo)
        again = await self._verify_again(event, repo) if isinstance(event, PullRequestChanged) else ""
        return "; ".join(filter(None, (outcome, again)))

    async def _verify_again(self, event: PullRequestChanged, repo: RepositoryContext) -> str:
        """After a new commit on a pull request that was verified."""
        queries, place = self._stores.job_queries, (event.repository.id, event.subject.number)
        if event.change != "synchronize" or await asyncio.to_thread(queries.verification, *place) is None:
            return ""
        config = await read_config(repo.reader, self._defaults.operator)
        if not isinstance(config, RepoConfig):
            return "no verification: the configuration is invalid"
        outcome = await verify_again(event, repo, self._stores, self._job_creator, config)
        return outcome if isinstance(outcome, str) else outcome.outcome

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
        facts = await self._fact_loader.about(event, command, repo, trigger)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"  # the other path started its job meanwhile
        decision = self._decide(facts)
        if facts.requester:
            trigger = replace(trigger, login=facts.requester.login)  # the current one
        if isinstance(event, ChecksFailed) and facts.pull:
            trigger = replace(trigger, number=facts.pull.number)
        context = TriggerContext(repo, trigger, facts)
        if not isinstance(event, ChecksFailed):
            outcome = await self._act(decision, context)
        elif isinstance(decision, JobRequest):
            if event.source == "check_run" and not await repo.reader.failed_checks(event.head_sha):
                return "skip checks: some are still running"
            outcome = await self._job_creator.start(decision, context, aim="fix_checks")
        elif isinstance(decision, Ignored) and decision.visible:
            outcome = await self._act(decision, context)
        else:  # checks fail one by one, so a reason to wait is not a final decision
            return await self._apply_notification(decision, event, repo)
        return await self._post_and_record(context, outcome) if isinstance(outcome, TriggerAnswer) else outcome

    async def _cancel_once(self, event: LabelRemoved, repo: RepositoryContext) -> str:
        """Removing our label means stop, also for requests that were made before but arrive later."""
        trigger = await self._fact_loader.identify(event, None, repo)
        if decided := await asyncio.to_thread(self._stores.triggers.decided, trigger.key):
            return f"decided before: {decided.outcome}"
        facts = await self._fact_loader.about(event, None, repo, trigger)
        outcome = await self._apply_notification(self._decide(facts), event, repo)
        trigger = replace(trigger, verb="relabel" if event.label.casefold() in facts.labels else "stop")
        return await self._post_and_record(TriggerContext(repo, trigger, facts), TriggerAnswer(outcome))

    def _decide(self, facts: EventFacts) -> Decision:
        return decide(facts, now=self._stores.clock())

    async def _handle_without_access(self, event: InstallationChanged | RepositoryChanged) -> str:
        """Handle an event of an installation or repository without asking GitHub, because access may be gone."""
        bot = self._github_clients.known or BotAccount(user=0)
        return await self._apply_notification(self._decide(EventFacts(event, None, bot, IssueState())), event, None)

    async def _apply_notification(self, decision: Decision, event: Event, repo: RepositoryContext | None) -> str:
        if isinstance(decision, Notification):
            if decision.aim == "reconcile":
                self._new_installations.add(decision.installation)
            return f"{decision.rule}: {await self._change_notifications.handle(decision, event, repo)}"
        if isinstance(decision, Ignored):
            return f"skip {decision.rule}: {decision.reason}"
        raise TypeError(f"nobody asked for {type(decision).__name__}")

    async def _act(  # noqa: PLR0911  # one case a kind
        self, decision: Decision, context: TriggerContext
    ) -> str | TriggerAnswer:
        match decision:
            case JobRequest():
                if locked := decision.options.locked_by(self._defaults.operator):
                    text = replies.refused(f"The server's operator has locked `{locked}`; remove that option.")
                    return TriggerAnswer("reply locked", text)
                try:
                    call = CommandCall(decision, context, self._stores, self._job_creator, self._defaults)
                    return await handler_of(context.facts).run(call)
                except (NeedsHumanAction, NoAccess) as error:  # permanent; temporary ones are raised and retried
                    return TriggerAnswer("reply in_the_way", replies.forge_refusal(error.message, error.hint))
            case Reply():
                text = replies.reply(decision.text, decision.suggestion)
                if decision.rule == "broken_config":
                    text = replies.broken_config(decision.text, SOURCE)
                    return TriggerAnswer("reply broken_config", text, once_for=decision.text)
                return TriggerAnswer(f"reply {decision.rule}", text)
            case Ignored():
                outcome = f"skip {decision.rule}: {decision.reason}"
                if decision.rule not in CAPS:
                    return TriggerAnswer(outcome, replies.refused(decision.reason) if decision.visible else "")
                needs_human = ChangeLabels(add=(NEEDS_HUMAN,))
                await asyncio.to_thread(self._add_effect, context.trigger.key, context, needs_human)
                return TriggerAnswer(outcome, replies.reply(decision.reason))
        raise TypeError(f"a trigger is no {type(decision).__name__}")

    async def _post_and_record(self, context: TriggerContext, answer: TriggerAnswer) -> str:
        return await asyncio.to_thread(self._post_and_record_now, context, answer)

    def _post_and_record_now(self, context: TriggerContext, answer: TriggerAnswer) -> str:
        """Post the reply, then store the trigger's outcome. Blocking and idempotent."""
        if answer.text and context.promised_job:
            self._stores.requests.end(context.promised_job, "stopped", answer.text)
        elif answer.text:
            key = context.trigger.key
            if answer.once_for:
                digest = hashlib.sha256(answer.once_for.encode()).hexdigest()[:16]
                key = f"r{context.repo.repository.id}#{context.trigger.number}/told:{digest}"
            self._add_effect(key, context, UpdateStatusComment(body=answer.text))
        self._stores.triggers.record(context.trigger, answer.outcome, "")
        return answer.outcome

    def _add_effect(self, key: str, context: TriggerContext, effect: Effect) -> None:
        self._stores.outbox.add(name_without_job(key), 0, context.issue_ref, effect)
