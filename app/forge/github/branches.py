"""Branches on GitHub: commits of the trusted repository pushed under a lease, never over anybody's work."""

import asyncio
import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import NamedTuple

from app.forge.errors import ForgeError, NeedsHuman, NoAccess, TryAgain, WaitUntil
from app.forge.github.calls import GIT_FETCH, GIT_PUSH
from app.forge.github.door import Door
from app.forge.github.reads import Reader
from app.gitcommand import check_branch
from app.gitformat import free_name
from app.gitremote import Push, Remote, branch_tips, fetch, fetch_history, push
from app.gitstore import GitError, GitStore
from app.redact import mask_tokens


class Words(NamedTuple):
    """Part of what git said, and what kind of failure that is."""

    pattern: str
    kind: type[ForgeError]
    hint: str = ""
    means: str = ""
    """In a sentence, where git's words are many."""


_TOLD = (
    Words(
        "check-ref-format|no name for a branch",
        NeedsHuman,
        "Is the pattern for branches in the configuration a name that git takes?",
    ),
    Words("is at [0-9a-f]{40} by now", NeedsHuman, "The pull request has moved on; ask again."),
    Words("error: 429|rate limit", WaitUntil),
    Words("error: 40[13]|authentication failed|write access .* not granted", NoAccess, "May the App write contents?"),
    Words("error: 404|repository .* not found|error: 410|error: 451", NoAccess, "Is the App still installed here?"),
    Words("error: 3\\d\\d|unable to update url base from redirection", NoAccess, "The repository has moved."),
    Words("", TryAgain),
)
_REFUSED = (
    Words("without .?workflows.? permission", NeedsHuman, "The App may not change workflows, and does not ask to."),
    Words(
        "verified signatures",
        NeedsHuman,
        "Take the branches below `agent-fix/` out of that rule, or let the App bypass it.",
        "A rule of the repository wants signed commits on this branch, and agent-fix does not sign its commits.",
    ),
    Words("protected branch|GH006|GH013|rule violations", NeedsHuman, "A rule of the repository protects this branch."),
    Words("archived", NoAccess, "The repository is archived."),
    Words("failed to update ref|cannot lock ref|internal", TryAgain),
    Words("", NeedsHuman),
)


class Branches:
    """The branches of one repository, through the trusted store."""

    def __init__(self, door: Door, store: GitStore, address: str) -> None:
        self._door = door
        self.store = store
        self._address = address

    async def bring(self, commit: str, *, ref: str = "") -> None:
        """Have a commit of the repository in the store, without its history; `ref` shows it where it is a fork's."""
        await asyncio.to_thread(self.store.ensure)
        token = await self._door.token(GIT_FETCH)
        try:
            await asyncio.to_thread(fetch, self.store, self._remote(token), commit, ref=ref)
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._door.give_back(token)

    async def bring_history(self, commit: str) -> bool:
        """Have what the commits before one changed, for finding places by it; best effort, and whether it is there."""
        token = await self._door.token(GIT_FETCH)
        try:
            return await asyncio.to_thread(fetch_history, self.store, self._remote(token), commit)
        except GitError:
            return False
        finally:
            await self._door.give_back(token)

    async def ensure(self, name: str, commit: str, *, replacing: Collection[str] = ()) -> str:
        """Make `commit` a branch that was not there; numbered where the name holds something else.

        One that holds a commit of `replacing`, and so nothing of anybody's, is moved on.
        """
        token = await self._door.token(GIT_PUSH)
        remote = self._remote(token)
        try:
            await asyncio.to_thread(check_branch, name)
            for _ in range(8):  # another may take the name between the look and the leap
                tips = await asyncio.to_thread(branch_tips, self.store, remote, name.partition("/")[0])
                free, expected = _name_for(name, commit, tips, replacing)
                if expected == commit or not self._stale(await self._push(remote, free, commit, expected), free):
                    return free
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._door.give_back(token)
        raise TryAgain(f"No name for the branch {name} could be had.")

    async def advance(self, name: str, commit: str, expected: str) -> str:
        """Move a branch from `expected` to `commit`. NeedsHuman where somebody else moved it meanwhile.

        What others wrote stays below our commit: a tip that is not, is left only where it is our own.
        """
        token = await self._door.token(GIT_PUSH)
        remote = self._remote(token)
        try:
            await asyncio.to_thread(check_branch, name)
            tip = (await asyncio.to_thread(branch_tips, self.store, remote, name)).get(name)
            if tip == commit:
                return name
            if tip is None:
                raise NeedsHuman(f"The branch {name} was deleted.", hint="Ask again to start anew.")
            if tip != expected or not await self._may_leave(tip, commit):
                raise _overtaken(name)
            if self._stale(await self._push(remote, name, commit, expected), name):
                raise _overtaken(name)
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._door.give_back(token)
        return name

    async def remove(self, name: str, commit: str) -> None:
        """Take a branch away that still holds this commit and nothing else; one that is elsewhere stays."""
        token = await self._door.token(GIT_PUSH)
        remote = self._remote(token)
        try:
            await asyncio.to_thread(check_branch, name)
            tips = await asyncio.to_thread(branch_tips, self.store, remote, name)
            if tips.get(name) == commit:
                async with self._door.pace.turn(mutation=True):
                    gone = await asyncio.to_thread(push, self.store, remote, name, None, expected=commit)
                self._stale(gone, name)
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._door.give_back(token)

    async def _push(self, remote: Remote, name: str, commit: str, expected: str | None) -> Push:
        async with self._door.pace.turn(mutation=True):
            return await asyncio.to_thread(push, self.store, remote, name, commit, expected=expected)

    async def _may_leave(self, tip: str, commit: str) -> bool:
        if tip in await asyncio.to_thread(self.store.parents, commit):
            return True
        return await Reader(self._door).author_address(tip) == self._address

    def _stale(self, pushed: Push, name: str) -> bool:
        """Whether the branch was elsewhere; a refusal is raised."""
        if pushed.stale or not pushed.refused:
            return pushed.stale
        raise self._failure(_REFUSED, f"GitHub did not take the branch {name}: {pushed.refused}")

    def _told(self, error: GitError) -> ForgeError:
        return self._failure(_TOLD, f"Git could not talk to GitHub: {error}")

    def _failure(self, table: tuple[Words, ...], text: str) -> ForgeError:
        words = next(words for words in table if re.search(words.pattern, text, re.IGNORECASE))
        if words.kind is WaitUntil:
            until = self._door.app.now() + timedelta(seconds=60)
            self._door.pace.be_silent(until)
            return WaitUntil(mask_tokens(text), until=until)
        return words.kind(mask_tokens(" ".join(filter(None, (words.means, text)))), hint=words.hint)

    def _remote(self, token: str) -> Remote:
        repository, host = self._door.repository, self._door.app.host
        variables = {"https_proxy": host.proxy, "http_proxy": host.proxy} if host.proxy else {}
        return Remote(host.git_url(repository.owner, repository.name), token, variables)


def _name_for(name: str, commit: str, tips: Mapping[str, str], ours: Collection[str]) -> tuple[str, str | None]:
    """The branch's name, and what it holds: the commit itself, one of ours to be replaced, or nothing (None)."""
    for wanted in (commit, *ours):
        found, there = free_name(name, wanted, tips)
        if there:
            return found, wanted
    return free_name(name, commit, tips)[0], None


def _overtaken(name: str) -> NeedsHuman:
    return NeedsHuman(
        f"Somebody else has pushed to {name} since; their commits are never overwritten.",
        hint="Ask again, and the work begins from what is there now.",
    )
