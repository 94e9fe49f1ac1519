"""The doors to repositories, and the readers behind them, for one way in; who we are is asked once."""

from dataclasses import dataclass

from app.forge.github.checks import Checks
from app.forge.github.connection import Connection, RepositoryId
from app.forge.github.door import Door
from app.forge.github.identity import who_we_are
from app.forge.github.pulls import Pulls
from app.forge.github.reads import Reader
from app.forge.github.talk import Talk
from app.forge.github.threads import Threads
from app.orders import Bot
from app.task import Person


@dataclass(frozen=True, slots=True)
class Ourselves:
    """Our account: by number for rules, by login for people, as an author for commits."""

    bot: Bot
    login: str
    person: Person


class Readers:
    """All that is asked of one repository."""

    def __init__(self, door: Door) -> None:
        self.door = door
        self.facts = Reader(door)
        self.talk = Talk(door)
        self.pulls = Pulls(door)
        self.checks = Checks(door)
        self.threads = Threads(door, "")


class Doors:
    """One GitHub, by one way in."""

    def __init__(self, app: Connection, allowed_apps: frozenset[int] = frozenset()) -> None:
        self.app = app
        self._allowed_apps = allowed_apps
        self._ourselves: Ourselves | None = None

    def to(self, installation: int, repository: RepositoryId) -> Readers:
        return Readers(Door(self.app, installation, repository))

    @property
    def known(self) -> Ourselves | None:
        """Who we are, once that was asked."""
        return self._ourselves

    async def ourselves(self, readers: Readers) -> Ourselves:
        """Asked through any door that is open: accounts are not told to an App without one."""
        if self._ourselves is None:
            found = await who_we_are(readers.door)
            bot = Bot(app=self.app.app_id, user=found.user, allowed_apps=self._allowed_apps)
            self._ourselves = Ourselves(bot, found.login, found.person)
        return self._ourselves
