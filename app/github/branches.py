"""Branches on GitHub: commits of the trusted repository pushed under a lease, never over anybody's work."""

import asyncio
import re
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import NamedTuple

from app.core.redaction import mask_tokens
from app.github.calls import GIT_FETCH, GIT_PUSH
from app.github.errors import ForgeError, NeedsHumanAction, NoAccess, RateLimited, TemporaryFailure, WorkflowsMoved
from app.github.reader import RepositoryReader
from app.github.repository_api import RepositoryApi
from app.repo.git_command import check_branch
from app.repo.git_format import free_name
from app.repo.git_store import GitError, GitStore
from app.repo.remote import PushResult, Remote, branch_tips, fetch, fetch_history, push


class RefusalPattern(NamedTuple):
    """Part of what git said, and what kind of failure that is."""

    pattern: str
    kind: type[ForgeError]
    hint: str = ""
    means: str = ""
    """In a sentence, where git's words are many."""


_TOLD = (
    RefusalPattern(
        "check-ref-format|no name for a branch",
        NeedsHumanAction,
        "Is the pattern for branches in the configuration a name that git takes?",
    ),
    RefusalPattern("is at [0-9a-f]{40} by now", NeedsHumanAction, "The pull request has moved on; ask again."),
    RefusalPattern("error: 429|rate limit", RateLimited),
    RefusalPattern(
        "error: 40[13]|authentication failed|write access .* not granted", NoAccess, "May the App write contents?"
    ),
    RefusalPattern(
        "error: 404|repository .* not found|error: 410|error: 451", NoAccess, "Is the App still installed here?"
    ),
    RefusalPattern("error: 3\\d\\d|unable to update url base from redirection", NoAccess, "The repository has moved."),
    RefusalPattern("", TemporaryFailure),
)
_REFUSED = (
    RefusalPattern(
        "without .?workflows?.? (?:permission|scope)",
        WorkflowsMoved,
        "A workflow changed meanwhile, or the branch changes one, which needs a person. `/agent retry` on an issue and "
        "`/agent rebase` on a pull request begin from what is there now.",
    ),
    RefusalPattern(
        "verified signatures",
        NeedsHumanAction,
        "Take the branches below `agent-fix/` out of that rule, or let the App bypass it.",
        "A rule of the repository wants signed commits on this branch, and agent-fix does not sign its commits.",
    ),
    RefusalPattern(
        "protected branch|GH006|GH013|rule violations",
        NeedsHumanAction,
        "A rule of the repository protects this branch.",
    ),
    RefusalPattern("archived", NoAccess, "The repository is archived."),
    RefusalPattern("failed to update ref|cannot lock ref|internal", TemporaryFailure),
    RefusalPattern("", NeedsHumanAction),
)


class BranchesApi:
    """The branches of one repository, through the trusted store."""

    def __init__(self, api: RepositoryApi, store: GitStore, address: str) -> None:
        self._api = api
        self.store = store
        self._address = address

    async def fetch(self, commit: str, *, ref: str = "") -> None:
        """Have a commit of the repository in the store, without its history; `ref` shows it where it is a fork's."""
        await asyncio.to_thread(self.store.ensure)
        token = await self._api.token(GIT_FETCH)
        try:
            await asyncio.to_thread(fetch, self.store, self._remote(token), commit, ref=ref)
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._api.revoke_token(token)

    async def fetch_history(self, commit: str) -> bool:
        """Have what the commits before one changed, for finding places by it; best effort, and whether it is there."""
        token = await self._api.token(GIT_FETCH)
        try:
            return await asyncio.to_thread(fetch_history, self.store, self._remote(token), commit)
        except GitError:
            return False
        finally:
            await self._api.revoke_token(token)

    async def ensure(self, name: str, commit: str, *, replacing: Collection[str] = ()) -> str:
        """Make `commit` a branch that was not there; numbered where the name holds something else.

        One that holds a commit of `replacing`, and so nothing of anybody's, is moved on.
        """
        token = await self._api.token(GIT_PUSH)
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
            await self._api.revoke_token(token)
        raise TemporaryFailure(f"No name for the branch {name} could be had.")

    async def advance(self, name: str, commit: str, expected: str) -> str:
        """Move a branch from `expected` to `commit`. NeedsHuman where somebody else moved it meanwhile.

        What others wrote stays below our commit: a tip that is not, is left only where it is our own.
        """
        token = await self._api.token(GIT_PUSH)
        remote = self._remote(token)
        try:
            await asyncio.to_thread(check_branch, name)
            tip = (await asyncio.to_thread(branch_tips, self.store, remote, name)).get(name)
            if tip == commit:
                return name
            if tip is None:
                raise NeedsHumanAction(f"The branch {name} was deleted.", hint="Ask again to start anew.")
            if tip != expected or not await self._may_leave(tip, commit):
                raise _overtaken(name)
            if self._stale(await self._push(remote, name, commit, expected), name):
                raise _overtaken(name)
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._api.revoke_token(token)
        return name

    async def remove(self, name: str, commit: str) -> None:
        """Take a branch away that still holds this commit and nothing else; one that is elsewhere stays."""
        token = await self._api.token(GIT_PUSH)
        remote = self._remote(token)
        try:
            await asyncio.to_thread(check_branch, name)
            tips = await asyncio.to_thread(branch_tips, self.store, remote, name)
            if tips.get(name) == commit:
                async with self._api.pace.wait_for_mutation(mutation=True):
                    gone = await asyncio.to_thread(push, self.store, remote, name, None, expected=commit)
                self._stale(gone, name)
        except GitError as error:
            raise self._told(error) from None
        finally:
            await self._api.revoke_token(token)

    async def _push(self, remote: Remote, name: str, commit: str, expected: str | None) -> PushResult:
        async with self._api.pace.wait_for_mutation(mutation=True):
            return await asyncio.to_thread(push, self.store, remote, name, commit, expected=expected)

    async def _may_leave(self, tip: str, commit: str) -> bool:
        below = await asyncio.to_thread(self.store.parents, commit)
        if tip in below or tip in await asyncio.to_thread(self.store.parents, below[0]):  # of a merge on our commit
            return True
        return await RepositoryReader(self._api).author_address(tip) == self._address

    def _stale(self, pushed: PushResult, name: str) -> bool:
        """Whether the branch was elsewhere; a refusal is raised."""
        if pushed.stale or not pushed.refused:
            return pushed.stale
        raise self._failure(_REFUSED, f"GitHub did not take the branch {name}: {pushed.refused}")

    def _told(self, error: GitError) -> ForgeError:
        return self._failure(_TOLD, f"Git could not talk to GitHub: {error}")

    def _failure(self, table: tuple[RefusalPattern, ...], text: str) -> ForgeError:
        words = next(words for words in table if re.search(words.pattern, text, re.IGNORECASE))
        if words.kind is RateLimited:
            until = self._api.app.now() + timedelta(seconds=60)
            self._api.pace.pause_until(until)
            return RateLimited(mask_tokens(text), until=until)
        return words.kind(mask_tokens(" ".join(filter(None, (words.means, text)))), hint=words.hint)

    def _remote(self, token: str) -> Remote:
        repository, host = self._api.repository, self._api.app.host
        variables = {"https_proxy": host.proxy, "http_proxy": host.proxy} if host.proxy else {}
        return Remote(host.git_url(repository.owner, repository.name), token, variables)


def _name_for(name: str, commit: str, tips: Mapping[str, str], ours: Collection[str]) -> tuple[str, str | None]:
    """The branch's name, and what it holds: the commit itself, one of ours to be replaced, or nothing (None)."""
    for wanted in (commit, *ours):
        found, there = free_name(name, wanted, tips)
        if there:
            return found, wanted
    return free_name(name, commit, tips)[0], None


def _overtaken(name: str) -> NeedsHumanAction:
    return NeedsHumanAction(
        f"Somebody else has pushed to {name} since; their commits are never overwritten.",
        hint="Ask again, and the work begins from what is there now.",
    )
