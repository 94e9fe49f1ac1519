"""Reception as its process sees it: three chores, each a look at what is due, none of which ever loops by itself."""

from app.forge.github.connection import App, Connection
from app.forge.github.registration import Registration
from app.jobs.owner import this_process
from app.reception.books import Books, Defaults, Mirror
from app.reception.desk import Desk
from app.reception.doors import Doors
from app.reception.inflow import Inflow
from app.reception.reconcile import Reconciling
from app.reception.stock import Stock


class Reception:
    """Takes deliveries in, brings base commits, looks for what no webhook told."""

    def __init__(self, connection: Connection, books: Books, mirror: Mirror, defaults: Defaults) -> None:
        doors = Doors(connection, defaults.allowed_apps)
        self.desk = Desk(doors, books, defaults)
        registration = Registration(connection) if isinstance(connection, App) else None
        self._reconciling = Reconciling(doors, registration, books, self.desk.handle) if registration else None
        self._stock = Stock(doors, books, mirror)
        self._inflow = Inflow(books.inbox, self.desk.handle, books.clock, f"{this_process()}:reception")

    async def next(self) -> int:
        """Deal with the deliveries that are due; returns how many."""
        dealt_with = await self._inflow.next()
        for installation in self.desk.take_new_installations():
            if self._reconciling:
                await self._reconciling.installation(installation)
        return dealt_with

    async def stock(self) -> int:
        """Bring base commits of admitted jobs; returns of how many jobs."""
        return await self._stock.bring()

    async def reconcile_when_due(self) -> None:
        if self._reconciling:
            await self._reconciling.when_due()

    async def reconcile(self) -> None:
        """Ask GitHub for what no webhook told; at the start and every few minutes. Only an App has webhooks."""
        if self._reconciling:
            await self._reconciling.everything()
