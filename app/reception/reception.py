"""Reception as its process sees it: three chores, each a look at what is due, none of which ever loops by itself."""

from app.forge.github.connection import App
from app.jobs.owner import this_process
from app.reception.books import Books, Defaults, Mirror
from app.reception.desk import Desk
from app.reception.doors import Doors
from app.reception.inflow import Inflow


class Reception:
    """Takes deliveries in, brings base commits, looks for what no webhook told."""

    def __init__(self, app: App, books: Books, mirror: Mirror, defaults: Defaults) -> None:
        doors = Doors(app, defaults.allowed_apps)
        self.desk = Desk(doors, books, defaults)
        self._inflow = Inflow(books.inbox, self.desk.handle, books.clock, f"{this_process()}:reception")

    async def next(self) -> int:
        """Deal with the deliveries that are due; returns how many."""
        return await self._inflow.next()
