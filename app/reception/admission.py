"""New jobs: what was asked becomes a job and its commission, kept in one transaction with the trigger."""

import asyncio
from dataclasses import replace
from datetime import timedelta

from app.commission import Commission
from app.context.overrides import DIRECTORY, NO_OVERRIDES, overrides_of
from app.errors import AgentFixError, ExitCode
from app.events import Words
from app.forge.base import Target
from app.forge.errors import NeedsHuman
from app.gitformat import is_full_id
from app.job import Job
from app.orders import Order
from app.publish import replies
from app.publish.intent import React
from app.publish.intents import StaleEpoch
from app.reception.books import Books, Defaults
from app.reception.circumstances import Matter, Place
from app.reception.drafting import Draft, as_before, kind_of_order
from app.reception.material import Material, material
from app.reception.replying import Replying

PRIORITIES = {"ask": 0, "plan": 0, "mend": 2}
"""Lower is sooner; all else has 1."""
AGAIN_SOON = timedelta(seconds=2)


class NotYet(AgentFixError):  # noqa: N818  # a wait
    """Something has to end or appear first; the delivery is dealt with later."""

    def __init__(self, message: str, after: timedelta = AGAIN_SOON) -> None:
        super().__init__(message, code=ExitCode.BUSY)
        self.after = after


class StateChanged(NotYet):
    """A job began or ended here since the matter was looked at: it has to be decided anew."""


class Admission:
    """Begins jobs."""

    def __init__(self, books: Books, defaults: Defaults, replying: Replying) -> None:
        self._books = books
        self._defaults = defaults
        self._replying = replying

    async def start(self, order: Order, matter: Matter, *, request: str = "", plan_file: str = "") -> str:
        """A job for somebody's words, a label, a question, or checks that fail."""
        runner = order.options.runner
        if runner is not None and runner not in self._defaults.runners:
            words = replies.unknown_runner(runner, self._defaults.runners)
            return await asyncio.to_thread(self._replying.answer, matter, "reply unknown_runner", words)
        pull, place = matter.found.pull, matter.place
        base = pull.head if pull else await _tip(place)
        if base is None or not is_full_id(base):
            words = replies.no_commits() if base is None else replies.not_done("Its objects are not SHA-1.")
            return await asyncio.to_thread(self._replying.answer, matter, "reply no_base", words)
        order = _with_description(order, matter)
        shown = await material(order, place, pull, matter.identity.asked_at)
        if order.aim == "mend":
            request = f"Checks fail on this pull request: {', '.join(shown.failing) or 'see below'}. Mend the cause."
        draft = self._draft(order, matter, base, shown, request=request, plan_file=plan_file)
        return await self._admit(await _with_prompts(draft), matter)

    async def restart(self, order: Order, matter: Matter) -> str:
        """The same again from scratch: what is at work ends first."""
        former = matter.found.job
        if former is not None and not former.row.final:
            ended = await asyncio.to_thread(self._books.queue.stop, former.job.id, "It is begun again from scratch.")
            if not ended:
                raise NotYet("The job at work has to end first.")
        if former is None:
            return await self.start(order, matter, request=order.text)
        request = order.text or former.job.task.request
        return await self.start(as_before(order, former.job), matter, request=request)

    async def move(self, order: Order, matter: Matter) -> str:
        """Our branch is brought up to its base, or gets the empty commit that lets CI start; stock does either."""
        pull, place = matter.found.pull, matter.place
        if pull is None:
            raise ValueError(f"/agent {order.aim} is for pull requests")
        if order.aim == "ci":
            return await self._admit(self._draft(order, matter, pull.head, Material()), matter)
        tip = await place.readers.facts.head(pull.base_branch)
        if tip is None:
            words = replies.not_done(f"The branch `{pull.base_branch}` is gone.")
            return await asyncio.to_thread(self._replying.answer, matter, "reply no_base", words)
        if await place.readers.pulls.merge_base(tip, pull.head) == tip:
            words = replies.reply(f"The branch has everything of `{pull.base_branch}` already.")
            return await asyncio.to_thread(self._replying.answer, matter, "reply up_to_date", words)
        shown = await material(order, place, pull, matter.identity.asked_at)
        request = (
            f"Bring the branch up to `{pull.base_branch}`: resolve the conflicts, so that both sides' intent is kept."
        )
        request = f"{request}\n\n{order.text}".strip()
        draft = self._draft(order, matter, pull.head, shown, request=request, parents=(pull.head, tip))
        return await self._admit(await _with_prompts(draft), matter)

    def _draft(
        self,
        order: Order,
        matter: Matter,
        base: str,
        shown: Material,
        *,
        request: str = "",
        plan_file: str = "",
        parents: tuple[str, ...] = (),
    ) -> Draft:
        if isinstance(matter.found.config, AgentFixError):
            raise TypeError("a broken configuration begins nothing")
        return Draft(
            order=order,
            place=matter.place,
            config=matter.found.config,
            defaults=self._defaults,
            base=base,
            created_at=self._books.clock(),
            material=shown,
            pull=matter.found.pull,
            person=matter.found.person,
            login=matter.login,
            request=request,
            plan_file=plan_file,
            parents=parents,
        )

    async def _admit(self, draft: Draft, matter: Matter) -> str:
        job, commission = draft.job(), draft.commission()
        admitted = await asyncio.to_thread(self._keep, job, commission, matter)
        if not admitted:
            return "decided before"
        if admitted != job.id:
            raise StateChanged(f"Job {admitted} is at work here.")
        return f"job {job.id}"

    def _keep(self, job: Job, commission: Commission, matter: Matter) -> str:
        priority = PRIORITIES.get(commission.aim, 1)
        admitted = self._books.queue.admit(job, commission, matter.asked, priority=priority)
        if admitted == job.id and commission.target is not None:
            self._greet(job, commission, commission.target)
        return admitted

    def _greet(self, job: Job, commission: Commission, target: Target) -> None:
        """At once; the herald would say it too, so a crash right here loses nothing."""
        try:
            self._books.intents.want(job.id, 0, commission.place, React(target=target, content="eyes"))
        except StaleEpoch:  # a worker has it already
            return


async def _with_prompts(draft: Draft) -> Draft:
    """On a pull request with the default branch's word on this kind of task: the branch itself has no say in it."""
    if draft.pull is None or draft.order.aim == "ask":
        return draft
    kind = kind_of_order(draft.order, draft.request, on_pull=True).kind
    path = f"{DIRECTORY}/{kind}.md"
    content = await draft.place.readers.facts.file(path)
    return replace(draft, overrides=NO_OVERRIDES if content is None else overrides_of({path: content}))


async def _tip(place: Place) -> str | None:
    """Of the default branch; None where there is no commit yet."""
    try:
        return await place.readers.facts.head(place.repository.default_branch)
    except NeedsHuman:  # GitHub's answer for a repository that is empty
        return None


def _with_description(order: Order, matter: Matter) -> Order:
    """Of failing checks nobody sent the pull request's description along."""
    pull = matter.found.pull
    if order.aim != "mend" or pull is None:
        return order
    about = {"title": pull.title, "body": Words.of(pull.body)}
    return order.model_copy(update={"subject": order.subject.model_copy(update=about)})
