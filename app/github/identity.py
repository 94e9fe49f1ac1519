"""Looks up the bot's own account, which identifies our comments, commits and pull requests."""

from weakref import WeakKeyDictionary

from app.core.task import Person
from app.github import api_models
from app.github.calls import GET_USER
from app.github.connection import TokenConnection
from app.github.models import BotAccount
from app.github.repository_api import RepositoryApi

_TOKEN_BOTS: WeakKeyDictionary[TokenConnection, BotAccount] = WeakKeyDictionary()
"""A token's account never changes; an App may be renamed while its server runs."""


async def find_bot_account(api: RepositoryApi) -> BotAccount:
    """The account of the App or of the given token."""
    if not isinstance(api.app, TokenConnection):
        return await _look_up(api)
    if api.app not in _TOKEN_BOTS:
        _TOKEN_BOTS[api.app] = await _look_up(api)
    return _TOKEN_BOTS[api.app]


async def _look_up(api: RepositoryApi) -> BotAccount:
    login = await api.auth.login()
    account = await api.read(api_models.AccountResponse, GET_USER, login)
    address = f"{account.id}+{login}@{api.app.host.noreply}"
    person = Person(name=login, email=address)
    return BotAccount(user=account.id, app=api.app.app_id, login=login, person=person)
