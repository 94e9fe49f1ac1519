"""The rule of who may ask: a person with write access by numeric id, or an App that the operator allowed."""

from collections.abc import Collection

from app.github.models import Account, ActorPermission


def refusal(
    actor: Account,
    requester: ActorPermission | None,
    *,
    via: int | None = None,
    allowed_actors: Collection[str] = (),
    allowed_apps: Collection[int] = (),
) -> str | None:
    """Why the actor may not ask anything of the bot, or None if they may.

    `via` is a bot's App, if it is known: that through which a comment was written, as signed. A bot's login proves
    nothing (anybody may register an App of that name) and an author's association is not asked: it is as old as the
    comment.
    """
    if requester is None:
        return "their permission is unknown"
    if requester.id != actor.id:
        return "the permission is someone else's"
    if not actor.is_person:
        return _bot_refusal(actor, via or requester.app, allowed_apps)
    if not requester.may_write:
        return "they have no write access"
    if allowed_actors and requester.login.casefold() not in {login.casefold() for login in allowed_actors}:
        return "they are not among the `allowed_actors` of this repository"
    return None


def _bot_refusal(actor: Account, app: int | None, allowed_apps: Collection[int]) -> str | None:
    if actor.kind != "Bot":
        return f"a {actor.kind or 'nameless'} account is not a person"
    return (
        None
        if app is not None and app in allowed_apps
        else "bots may not use commands, unless the operator allowed the App"
    )
