"""Who we are on a GitHub: our own account, by which comments, commits and pull requests are known as ours."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from app.forge.github import wire
from app.forge.github.calls import GET_USER
from app.forge.github.connection import Bearer
from app.forge.github.door import Door
from app.task import Person


@dataclass(frozen=True, slots=True)
class Bot:
    """The account that comments and commits are from; `user` is its number."""

    login: str
    person: Person
    user: int = 0


_BEHIND: WeakKeyDictionary[Bearer, Bot] = WeakKeyDictionary()
"""A token is one account's for as long as it lives; that of an App may be renamed while its server runs."""


async def who_we_are(door: Door) -> Bot:
    """The account behind the App, or behind the token that we were given."""
    if not isinstance(door.app, Bearer):
        return await _asked(door)
    if door.app not in _BEHIND:
        _BEHIND[door.app] = await _asked(door)
    return _BEHIND[door.app]


async def _asked(door: Door) -> Bot:
    login = await door.presence.login()
    account = await door.read(wire.Account, GET_USER, login)
    address = f"{account.id}+{login}@{door.app.host.noreply}"
    return Bot(login=login, person=Person(name=login, email=address), user=account.id)
