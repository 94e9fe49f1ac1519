"""From an order to a job and its commission: who decides what, in one place, and pure."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from app.commission import Commission, CommissionAim, Goal
from app.config import RepoConfig
from app.context.overrides import Overrides
from app.forge.facts import PullRequestFacts
from app.issue import issue_of
from app.job import Budget, Job, new_job_id
from app.model.base import Models
from app.orders import Aim, Order
from app.publish.forks import holds_commits_of_a_fork
from app.reception.books import Defaults
from app.reception.circumstances import Place, spot_of
from app.reception.material import Material
from app.repository import slug
from app.task import Person, Task
from app.task_kind import Kinded, Signs, Work, asked_before, kind_of
from app.text import one_line, visible

A_REVIEW_ASKS = "A review asks for changes: see to its threads."
MEND_WHAT_IS_OPEN = "See to what is open on this pull request: its review threads and its failing checks."


@dataclass(frozen=True, slots=True)
class Draft:
    """All that a new job is made from."""

    order: Order
    place: Place
    config: RepoConfig
    defaults: Defaults
    base: str
    """The commit id that the work starts from."""
    created_at: datetime
    material: Material
    pull: PullRequestFacts | None = None
    person: Person | None = None
    login: str = ""
    request: str = ""
    """In the place of the order's own words."""
    plan_file: str = ""
    parents: tuple[str, ...] = ()
    overrides: Overrides | None = None

    def job(self) -> Job:
        order, options, config = self.order, self.order.options, self.config
        task, models = self._task(), self._models()
        return Job(
            id=new_job_id(),
            task=task,
            branch=self._branch(task.slug),
            budget=self._budget(),
            model=models.code,
            models=models.model_copy(update={"code": ""}),
            reasoning="" if options.model else config.reasoning or "",
            runner=options.runner or config.runner or self.defaults.runner,
            sandbox=self.defaults.sandbox,
            plan_mode=self._plan_mode(),
            plan_file=self.plan_file,
            aim="ask" if order.aim == "ask" else "fix",
            attempts=options.attempts or 1,
            created_at=self.created_at.replace(microsecond=0),
        )

    def commission(self) -> Commission:
        order, repository, pull = self.order, self.place.repository, self.pull
        goal = self._goal()
        fork = pull is not None and holds_commits_of_a_fork(pull, repository.id)
        return Commission(
            place=spot_of(self.place, order.origin.number),
            aim=self._aim(),
            trigger=order.trigger,
            login=self.login,
            author=self.place.ours.person,
            config=self.config.model_copy(update={"ci": "manual"}) if fork else self.config,
            goal=goal,
            base_ref=pull.base_branch if pull else repository.default_branch,
            pull=pull.number if pull else None,
            fork=fork,
            expected=pull.head if pull and goal == "same_branch" else "",
            parents=self.parents,
            overrides=self.overrides,
            threads=self.material.threads if goal != "nowhere" else (),
            notes=tuple(self._notes()),
        )

    def _task(self) -> Task:
        order, repository = self.order, self.place.repository
        subject, number = order.subject, order.origin.number
        issue = issue_of(subject.title, subject.body.text, number=number, labels=subject.labels)
        kinded = kind_of_order(order, self.request, on_pull=self.pull is not None)
        return Task(
            repository=repository_name(self.place),
            issue=issue,
            base=self.base,
            base_ref=self.pull.head_branch if self.pull else repository.default_branch,
            slug=slug(issue.title),
            requester=self.person,
            origin=order.origin,
            request=self.request or order.text or self._unsaid(),
            sections=tuple(self.material.sections.all),
            kind=kinded.kind,
            kind_reason=kinded.reason,
        )

    def _unsaid(self) -> str:
        """What is meant where nothing was said."""
        if self.order.aim == "revise":
            return A_REVIEW_ASKS
        return MEND_WHAT_IS_OPEN if self.pull is not None and self.order.aim != "ask" else ""

    def _models(self) -> Models:
        """Whoever says anything says it for every kind of work: the command, the repository, the server."""
        if self.order.options.model:
            return Models(code=self.order.options.model)
        if self.config.model is not None:
            return self.config.model.models
        return self.defaults.models.model_copy(update={"code": self.defaults.model})

    def _branch(self, name: str) -> str:
        if self.pull is not None and self._goal() == "same_branch":
            return self.pull.head_branch
        return self.config.branch_for(slug=name, number=self.order.origin.number)

    def _goal(self) -> Goal:
        return "nowhere" if self.order.aim in {"ask", "plan"} else self.order.destination

    def _aim(self) -> CommissionAim:
        match self.order.aim:
            case "ask" | "plan" | "mend" | "ci" | "revise" as same:
                return same
            case "rebase":
                return "conflicts"
            case _:
                return "follow_up" if self.pull is not None else "fix"

    def _budget(self) -> Budget:
        budget = self.config.budget.over(self.defaults.budget)
        if self.order.options.budget is not None:
            return budget.model_copy(update={"usd": self.order.options.budget})
        return budget.for_a_question() if self.order.aim == "ask" else budget

    def _plan_mode(self) -> Literal["auto", "approve", "only", "none"]:
        """What was approved is not planned again; a change to a pull request is small, or says itself what to do."""
        if self.order.aim == "plan":
            return "only"
        if self.plan_file:
            return "auto"
        return "none" if self.pull is not None or self.order.aim == "ask" else self.config.plan

    def _notes(self) -> list[str]:
        order, sections = self.order, self.material.sections
        removed = visible(order.subject.title).removed + visible(order.subject.body.text).removed
        notes = [_hidden(removed, "the description")] if removed else []
        notes += [_hidden(sections.hidden, "the conversation")] if sections.hidden else []
        words = [part for part in order.changed if part != "head"]
        if words:
            notes.append(f"Edited after it was asked: {', '.join(words)}. The text as it was then counts.")
        if "head" in order.changed:
            notes.append("The branch has moved on since it was asked; the work began from where it stands now.")
        return [*notes, *sections.notes]


def kind_of_order(order: Order, request: str, *, on_pull: bool) -> Kinded:
    """What kind of task is asked for; `request` in the place of the order's own words."""
    places: dict[Aim, Work] = {"mend": "checks", "rebase": "merge"}
    return kind_of(
        Signs(
            title=one_line(visible(order.subject.title).text),
            request=request or order.text,
            labels=order.subject.labels,
            work=places.get(order.aim, "pull request" if on_pull else "issue"),
            asked=order.options.kind,
        )
    )


def as_before(order: Order, former: Job) -> Order:
    """An order to do the same again, or what was planned, with what was asked for then and is not asked otherwise."""
    options = order.options
    attempts = options.attempts or (former.attempts if former.attempts > 1 else None)
    kept = {"kind": options.kind or asked_before(former.task), "attempts": attempts}
    return order.model_copy(update={"options": options.model_copy(update=kept)})


def repository_name(place: Place) -> str:
    return f"{place.repository.owner}/{place.repository.name}"


def _hidden(count: int, where: str) -> str:
    what = "1 hidden character was" if count == 1 else f"{count:,} hidden characters were"
    return f"{what} removed from {where}, so that the agent saw what you see."
