"""The desk: one event, decided by `app.intake` and acted upon; whatever brings it again finds it decided.

What is wished for is written before the trigger counts as decided, each under a name that is the same the next time:
after a crash at any point the same event leads to the same single effect.
"""

import asyncio

from app.config import SOURCE, RepoConfig
from app.events import (
    ChecksFailed,
    Event,
    InstallationChanged,
    PullRequestChanged,
    Pushed,
    RepositoryChanged,
    Said,
    Trigger,
    Turn,
    Unlabelled,
)
from app.forge.errors import NeedsHuman, NoAccess
from app.intake import PER_HOUR, command_of, decide, overheard
from app.orders import Bot, Decision, Order, Reply, Signal, Skip, State
from app.publish import replies
from app.reception.admission import Admission, StateChanged
from app.reception.books import Books, Defaults
from app.reception.circumstances import Circumstances, Matter, Place, matter_of
from app.reception.doors import Doors
from app.reception.drafted import issue_behind
from app.reception.living import Living
from app.reception.looking import Looking
from app.reception.replying import Replying
from app.reception.surroundings import Surroundings
from app.reception.teaching import Teaching
from app.signals import WORK_LABELS

Local = Trigger | Turn | ChecksFailed | Pushed | RepositoryChanged
"""Events of one repository."""
CAPS = frozenset({"checks_cap", "reviews_cap"})
"""Rules by which a person is needed."""
MOST_LOOKS = 3
"""At one event: what it met may have changed while it was looked at."""


class Desk:
    """Deals with events, one at a time or several side by side."""

    def __init__(self, doors: Doors, books: Books, defaults: Defaults) -> None:
        self._doors = doors
        self._books = books
        self._looking = Looking(doors, books)
        self._replying = Replying(books)
        self._admission = Admission(books, defaults, self._replying)
        self._living = Living(books, self._admission, self._replying, defaults.budget)
        self._teaching = Teaching(books, self._replying, kept=defaults.lessons)
        self._surroundings = Surroundings(books, self._admission)
        self._new_installations: set[int] = set()

    async def handle(self, event: Event) -> str:
        """What became of it, in a few words. Raises a forge's errors, and NotYet where something has to end first."""
        if isinstance(event, InstallationChanged):
            return await self._without_place(event)
        known = self._doors.known
        if (known and overheard(event, known.bot)) or (isinstance(event, Trigger) and command_of(event) is None):
            return "skip overheard"
        if isinstance(event, Said) and await asyncio.to_thread(self._is_flood, event):
            return "skip too_many: a flood"
        for _ in range(MOST_LOOKS):
            try:
                return await self._look_and_act(event)
            except StateChanged:
                continue
        return await self._look_and_act(event)

    def _is_flood(self, event: Said) -> bool:
        """One more than the one that is answered: it does not even cost a request. A stop is always heard."""
        command = command_of(event) if isinstance(event, Trigger) else None
        if command is None or command.verb == "stop":
            return False
        return self._books.triggers.asked_lately(event.repository.id, event.actor.id) > PER_HOUR

    def take_new_installations(self) -> tuple[int, ...]:
        """Where there is more to be looked at than was told: repositories that were opened to us, or that came back."""
        taken, self._new_installations = tuple(sorted(self._new_installations)), set()
        return taken

    async def _look_and_act(self, event: Local) -> str:
        place = await self._looking.open(event)
        if place is None:
            if isinstance(event, RepositoryChanged):
                return await self._without_place(event)
            return "skip foreign_installation: the installation does not open this repository"
        if skip := overheard(event, place.ours.bot):
            return f"skip {skip.rule}"
        if isinstance(event, Trigger | ChecksFailed):
            return await self._answer_once(event, place)
        if isinstance(event, PullRequestChanged):
            await asyncio.to_thread(self._teaching.turned_down, event, place.ours.bot.user)
        if isinstance(event, Unlabelled) and event.label.casefold() in WORK_LABELS:
            return await self._call_off_once(event, place)
        found = await self._looking.about(event, place)
        return await self._follow(self._decide(event, found, place.ours.bot), place)

    async def _answer_once(self, event: Trigger | ChecksFailed, place: Place) -> str:
        identity = await self._looking.identify(event, place)
        if decided := await asyncio.to_thread(self._books.triggers.decided, identity.key):
            return f"decided before: {decided.outcome}"
        found = await self._looking.about(event, place, identity)
        if decided := await asyncio.to_thread(self._books.triggers.decided, identity.key):
            return f"decided before: {decided.outcome}"  # meanwhile, by its other way: its own job is no obstacle to it
        decision = self._decide(event, found, place.ours.bot)
        matter = matter_of(event, _verb(event), place, identity, found)
        if isinstance(event, ChecksFailed):
            return await self._mend(event, decision, matter)
        return await self._act(decision, matter)

    async def _call_off_once(self, event: Unlabelled, place: Place) -> str:
        """To take our label off is to say stop, also to what was asked before and arrives later."""
        identity = await self._looking.identify(event, place)
        if decided := await asyncio.to_thread(self._books.triggers.decided, identity.key):
            return f"decided before: {decided.outcome}"
        found = await self._looking.about(event, place, identity)
        outcome = await self._follow(self._decide(event, found, place.ours.bot), place)
        back_on = event.label.casefold() in {label.casefold() for label in found.state.labels}
        verb = "relabel" if back_on else "stop"
        matter = Matter(place, identity, found, event.subject.number, verb, event.actor.id)
        return await asyncio.to_thread(self._replying.decide, matter, outcome)

    def _decide(self, event: Event, found: Circumstances, bot: Bot) -> Decision:
        return decide(event, found.config, found.standing, found.state, bot, now=self._books.clock())

    async def _without_place(self, event: InstallationChanged | RepositoryChanged) -> str:
        """Of what is closed to us nothing can be asked."""
        nobody = self._doors.known.bot if self._doors.known else Bot(app=0, user=0)
        state = State(installation=event.installation)
        return await self._follow(self._decide(event, Circumstances(state, RepoConfig()), nobody), None)

    async def _follow(self, decision: Decision, place: Place | None) -> str:
        if isinstance(decision, Signal) and decision.aim == "reconcile":
            self._new_installations.add(decision.installation)
        if isinstance(decision, Signal):
            told = await self._surroundings.follow(decision, place)
            return f"{decision.rule}: {told}"
        if isinstance(decision, Skip):
            return f"skip {decision.rule}: {decision.reason}"
        raise TypeError(f"nobody asked for {type(decision).__name__}")

    async def _act(self, decision: Decision, matter: Matter) -> str:
        match decision:
            case Order():
                return await self._or_say_why_not(decision, matter)
            case Reply():
                return await asyncio.to_thread(self._reply, decision, matter)
            case Skip():
                return await asyncio.to_thread(self._skip, decision, matter)
        raise TypeError(f"a trigger is no {type(decision).__name__}")

    async def _or_say_why_not(self, order: Order, matter: Matter) -> str:
        """Who may ask is told what is in the way for good; what may mend itself is tried again."""
        try:
            return await self._carry_out(order, matter)
        except (NeedsHuman, NoAccess) as error:
            words = replies.in_the_way(error.message, error.hint)
            return await asyncio.to_thread(self._replying.answer, matter, "reply in_the_way", words)

    async def _carry_out(self, order: Order, matter: Matter) -> str:
        if order.aim in {"retry", "rebase", "ci"} and (issue := issue_behind(matter)):
            words = replies.not_done(f"This draft was opened early, and the work on it goes on in #{issue}.")
            return await asyncio.to_thread(self._replying.answer, matter, "skip early_draft", words)
        match order.aim:
            case "fix" | "plan" | "ask" | "mend" | "revise":
                return await self._admission.start(order, matter)
            case "retry":
                return await self._admission.restart(order, matter)
            case "rebase" | "ci":
                return await self._admission.move(order, matter)
            case "remember" | "forget":
                return await asyncio.to_thread(self._teaching.answer, order, matter)
            case _:
                return await self._living.tell(order, matter)

    async def _mend(self, event: ChecksFailed, decision: Decision, matter: Matter) -> str:
        """Failing checks come one by one: what only has to wait is not decided for good."""
        if isinstance(decision, Order):
            readers = matter.place.readers
            if event.source == "check_run" and not await readers.checks.failed(event.head_sha):
                return "skip checks: others are still going"
            return await self._admission.start(decision, matter)
        if isinstance(decision, Skip) and decision.visible:
            return await asyncio.to_thread(self._skip, decision, matter)
        return await self._follow(decision, matter.place)

    def _reply(self, decision: Reply, matter: Matter) -> str:
        outcome = f"reply {decision.rule}"
        match decision.rule:
            case "misread":
                words = replies.misread(decision.text, decision.suggestion)
            case "broken_config":
                words = replies.broken_config(decision.text, SOURCE)
                return self._replying.answer(matter, outcome, words, once_for=decision.text)
            case _:
                words = replies.reply(decision.text, decision.suggestion)
        return self._replying.answer(matter, outcome, words)

    def _skip(self, decision: Skip, matter: Matter) -> str:
        outcome = f"skip {decision.rule}: {decision.reason}"
        if decision.rule == "foreign_installation":
            return outcome  # said by who does not serve this repository, so nothing is decided by it
        if decision.visible:
            if decision.rule in CAPS:
                self._replying.call_people(matter)
                return self._replying.answer(matter, outcome, replies.reply(decision.reason))
            words = replies.not_done(decision.reason)
            return self._replying.answer(matter, outcome, words)
        return self._replying.decide(matter, outcome)


def _verb(event: Trigger | ChecksFailed) -> str:
    if isinstance(event, ChecksFailed):
        return "mend"
    command = command_of(event)
    return command.verb if command else ""
