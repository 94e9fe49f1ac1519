"""Orders to a job that is there: words, an approval, an answer, more money, a stop; each said once, in order."""

import asyncio
from collections.abc import Awaitable, Callable

from app.commands import HIGHEST_BUDGET, Options
from app.job import Budget
from app.jobs.messages import MessageKind
from app.jobs.roster import Commissioned
from app.orders import Order
from app.publish import replies
from app.publish.proof import clip
from app.reception.admission import Admission, NotYet, StateChanged
from app.reception.books import Books
from app.reception.circumstances import Matter
from app.reception.drafting import as_before
from app.reception.material import asking, is_about, refs_of, review_of, said_in
from app.reception.plans import approved_plan, plan_of, status_address
from app.reception.replying import Replying
from app.text import one_line

PARKED_FOR_APPROVAL = "awaiting_approval"
MOST_SAID = 20_000
"""Characters of one message to a job."""


class Living:
    """Speaks to the jobs that live."""

    def __init__(self, books: Books, admission: Admission, replying: Replying, defaults: Budget) -> None:
        self._books = books
        self._admission = admission
        self._replying = replying
        self._defaults = defaults

    async def tell(self, order: Order, matter: Matter) -> str:
        """Whatever the order is about."""
        handlers: dict[str, Callable[[Order, Matter, Commissioned], Awaitable[str]]] = {
            "steer": self._steer,
            "answer": self._answer,
            "approve": self._approve,
            "continue": self._continue,
            "stop": self._stop,
            "status": self._status,
        }
        job = matter.found.job
        if job is None:
            if order.aim != "status":
                raise StateChanged("The job is gone.")
            return await asyncio.to_thread(self._replying.answer, matter, "reply no_job", replies.no_job())
        return await handlers[order.aim](order, matter, job)

    async def _steer(self, order: Order, matter: Matter, job: Commissioned) -> str:
        if job.handed_over:
            raise NotYet("The job publishes what it did, and hears nothing more.")
        return await asyncio.to_thread(self._say, order, matter, job, await self._placed(order, matter, job))

    async def _placed(self, order: Order, matter: Matter, job: Commissioned) -> str:
        """What was said, with the lines of the diff that it is about; the job will answer in their threads too."""
        if order.thread is None and not review_of(order):
            return order.text
        review, asked_at = review_of(order), matter.identity.asked_at
        threads = await matter.place.readers.threads.of(matter.number, asked_at, asking=asking(order), review=review)
        refs = refs_of(each for each in threads if not each.resolved and is_about(order, each))
        if refs and job.commission.goal != "nowhere":
            await asyncio.to_thread(self._books.roster.join_threads, job.job.id, refs)
        if order.thread is not None:
            return _on_line(order.text, order.thread.path, order.thread.end)
        said = [_on_line(text, thread.path, thread.line) for thread, text in said_in(threads, review)]
        return clip("\n\n".join(text for text in (order.text, *said) if text.strip()), MOST_SAID)

    def _say(self, order: Order, matter: Matter, job: Commissioned, text: str) -> str:
        """The loop takes words at its next turn; a job that waits for people takes them when it goes on."""
        if not text:
            words = replies.not_done("A job is at work on it already.")
            return self._replying.answer(matter, "skip busy", words)
        self._message(matter, job, "steer", text)
        self._replying.acknowledge(matter)
        outcome = f"steer {job.job.id}"
        if job.row.state == PARKED_FOR_APPROVAL:
            return self._replying.answer(matter, outcome, replies.noted(job.row.state))
        return self._replying.decide(matter, outcome, job.job.id)

    async def _answer(self, order: Order, matter: Matter, job: Commissioned) -> str:
        text = await self._placed(order, matter, job)
        return await asyncio.to_thread(self._resume, order, matter, job, "answer", text)

    async def _approve(self, order: Order, matter: Matter, job: Commissioned) -> str:
        approved = await approved_plan(job, matter.place, self._books, matter.identity.asked_at)
        if approved.problem:
            return await asyncio.to_thread(self._replying.answer, matter, "reply plan", approved.problem)
        if job.row.state == PARKED_FOR_APPROVAL:
            return await asyncio.to_thread(self._resume, order, matter, job, "approve", approved.text)
        plan = approved.text or plan_of(job)
        begin = order.model_copy(update={"aim": "fix", "job": "", "text": order.text or job.job.task.request})
        return await self._admission.start(as_before(begin, job.job), matter, plan_file=plan)

    async def _continue(self, order: Order, matter: Matter, job: Commissioned) -> str:
        options = order.options
        if options.budget is None and options.extra is None and job.wants == "money":
            words = replies.reply("Its budget is spent; say how much more it may cost.", "/agent continue --budget +3")
            return await asyncio.to_thread(self._replying.answer, matter, "reply budget", words)
        return await asyncio.to_thread(self._resume, order, matter, job, "continue", order.text)

    def _resume(self, order: Order, matter: Matter, job: Commissioned, kind: MessageKind, text: str) -> str:
        """Said, then set on its way together with the trigger; after a crash in between it is not said again."""
        self._message(matter, job, kind, text)
        self._replying.acknowledge(matter)
        outcome = f"{kind} {job.job.id}"
        changed = None
        if kind == "continue":
            changed = job.job.model_copy(update={"budget": self._raised(job, order.options)})
        if not self._books.queue.resume(job.job.id, changed, trigger=matter.asked, outcome=outcome):
            if self._books.triggers.decided(matter.identity.key):
                return "decided before"
            words = replies.reply("The job has gone on, or ended, in the meantime.", "/agent status")
            return self._replying.answer(matter, "reply too_late", words)
        return outcome

    def _raised(self, job: Commissioned, options: Options) -> Budget:
        """More money where it was said, and minutes and turns like those of a new job in any case."""
        budget = job.job.budget
        fresh = job.commission.config.budget.over(self._defaults)
        usd = options.budget if options.budget is not None else budget.usd + (options.extra or 0)
        return Budget(
            usd=min(usd, HIGHEST_BUDGET * 1_000_000),
            minutes=budget.minutes + fresh.minutes,
            steps=budget.steps + fresh.steps,
        )

    async def _stop(self, order: Order, matter: Matter, job: Commissioned) -> str:
        return await asyncio.to_thread(self._end, matter, job)

    def _end(self, matter: Matter, job: Commissioned) -> str:
        """The job, and the questions that are being answered beside it."""
        reason = f"It was stopped by {matter.login}."
        self._replying.acknowledge(matter)
        for each in self._books.roster.of(repository=matter.place.repository.id):
            if each.commission.place.number == matter.number and each.job.id != job.job.id:
                self._books.queue.stop(each.job.id, reason)
        self._books.queue.stop(job.job.id, reason, trigger=matter.asked)
        return f"stop {job.job.id}"

    async def _status(self, order: Order, matter: Matter, job: Commissioned) -> str:
        return await asyncio.to_thread(self._tell_status, matter, job)

    def _tell_status(self, matter: Matter, job: Commissioned) -> str:
        address = status_address(job.job.id, self._books)
        words = replies.status(job.job.id, job.row.state, job.row.reason, address)
        return self._replying.answer(matter, f"status {job.job.id}", words)

    def _message(self, matter: Matter, job: Commissioned, kind: MessageKind, text: str) -> None:
        key, who = matter.identity.key, matter.login
        self._books.messages.add(job.job.id, kind, key=key, who=who, text=text)


def _on_line(text: str, path: str, line: int | None) -> str:
    where = f"{one_line(path)}:{line}" if line is not None else one_line(path)
    return f"(about {where})\n{text}" if text.strip() else ""
