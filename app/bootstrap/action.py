"""The GitHub Action's rooms: a server's, folded into the steps of one workflow job over one state directory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property

from app.bootstrap.premises import Premises
from app.bootstrap.publishing import Publishing, books_of, defaults_of, furnished
from app.events import Labelled
from app.forge.base import GIVEN
from app.forge.github.connection import Bearer, Host, RepositoryId
from app.intake import LABEL
from app.jobs.recalled import Recalled, RecallingRoster
from app.publish.status import KEPT_IN_RECORD, NOT_KEPT
from app.reception.doors import Doors, Readers
from app.reception.hindsight import Hindsight
from app.reception.recollecting import Recollecting
from app.settings.workflow import Workflow


class WorkflowPremises(Premises):
    """A server's, for one job of a workflow: what was before it is no row, and is asked of GitHub."""

    @cached_property
    def roster(self) -> RecallingRoster:
        return RecallingRoster(self.engine, self.clock)


@dataclass(frozen=True, slots=True)
class Workplace:
    """What a step works with that holds the token: it reads from and writes to GitHub, and knows no model."""

    publishing: Publishing
    roster: RecallingRoster
    readers: Readers
    recollecting: Recollecting
    recalled: Recalled

    async def labelled(self, number: int, label: str = LABEL) -> Labelled | None:
        """A label on an issue, as its webhook told it; None where nobody put it on."""
        repository = await self.readers.facts.repository()
        issue = await self.readers.facts.issue(number)
        happened = await self.readers.talk.happened(number) if issue else ()
        put_on = [each for each in happened if each.event == "labeled" and each.label.casefold() == label]
        return Hindsight(GIVEN, repository).labelled(issue, put_on[-1]) if issue and put_on else None


def kept_at(workflow: Workflow) -> str:
    """Where a change is that was not published."""
    return KEPT_IN_RECORD if workflow.records else NOT_KEPT


@asynccontextmanager
async def open_workflow(workflow: Workflow) -> AsyncIterator[Workplace]:
    settings = workflow.settings
    premises = WorkflowPremises(settings)
    premises.prepare()
    host = Host(settings.github_api_url, settings.github_url, settings.proxy)
    async with Bearer(host, workflow.token) as bearer:
        doors, recalled = Doors(bearer, settings.allowed_apps), Recalled(premises.engine, premises.clock)
        run = int(workflow.run.partition("-")[0])
        yield Workplace(
            furnished(premises, bearer, "", page=workflow.page, kept=kept_at(workflow)),
            premises.roster,
            doors.to(GIVEN, RepositoryId(0, workflow.owner, workflow.name)),
            Recollecting(doors, books_of(premises), defaults_of(settings), recalled, run),
            recalled,
        )
