"""Who we are on a GitHub: our own account, by which comments, commits and pull requests are known as ours."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

from app.core.task import Person
from app.github import api_models
from app.github.calls import GET_USER
from app.github.connection import TokenConnection
from app.github.repository_api import RepositoryApi


@dataclass(frozen=True, slots=True)
class BotUser:
    """The account that comments and commits are from; `user` is its number."""

    login: str
    person: Person
    user: int = 0


_BEHIND: WeakKeyDictionary[TokenConnection, BotUser] = WeakKeyDictionary()
"""A token is one account's for as long as it lives; that of an App may be renamed while its server runs."""


async def find_bot_user(api: RepositoryApi) -> BotUser:
    """The account behind the App, or behind the token that we were given."""
    if not isinstance(api.app, TokenConnection):
        return await _asked(api)
    if api.app not in _BEHIND:
        _BEHIND[api.app] = await _asked(api)
    return _BEHIND[api.app]


async def _asked(api: RepositoryApi) -> BotUser:
    login = await api.presence.login()
    account = await api.read(api_models.AccountResponse, GET_USER, login)
    address = f"{account.id}+{login}@{api.app.host.noreply}"
    return BotUser(login=login, person=Person(name=login, email=address), user=account.id)
