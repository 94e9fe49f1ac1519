"""Pushes commits of the trusted repository to branches on GitHub, with a lease that protects other people's commits."""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from app.config.signing import SigningKey
from app.github.base import BranchMoved, ForgeError, NeedsHumanAction, RateLimited, TemporaryFailure
from app.github.calls import GIT_FETCH, GIT_PUSH, Call
from app.github.reader import RepositoryReader
from app.github.refusals import git_failure
from app.github.repository_api import RepositoryApi
from app.github.signing import create_signed_commit
from app.repo.git_command import QUICK_TIMEOUT, check_branch
from app.repo.git_format import free_name
from app.repo.git_store import GitError, GitStore
from app.repo.remote import Remote, branch_tips, fetch, fetch_history, push


class BranchesApi:
    """The branches of one repository, through the trusted store."""

    def __init__(self, api: RepositoryApi, store: GitStore, address: str) -> None:
        self._api = api
        self.store = store
        self._address = address

    async def fetch(self, commit: str, *, ref: str = "") -> None:
        """Fetch a commit into the store, without its history; `ref` is the fork's ref for a commit of a fork."""
        await asyncio.to_thread(self.store.ensure)
        async with self._remote(GIT_FETCH) as remote:
            await asyncio.to_thread(fetch, self.store, remote, commit, ref=ref)

    async def fetch_history(self, commit: str) -> bool:
        """Fetch which files earlier commits changed, to rank files by; returns False if that fails."""
        async with self._remote(GIT_FETCH) as remote:
            try:
                return await asyncio.to_thread(fetch_history, self.store, remote, commit)
            except GitError:
                return False

    async def ensure(self, name: str, commit: str, *, replacing: Collection[str] = ()) -> str:
        """Make `commit` a new branch; returns its name, which gets a number if the name is taken.

        A branch that holds a commit of `replacing`, and so nobody else's work, is moved.
        """
        async with self._remote(GIT_PUSH) as remote:
            await asyncio.to_thread(check_branch, name)
            for _ in range(8):  # another process may take the name between the check and the push
                tips = await self._tips(remote, name.partition("/")[0])
                free, expected = _name_for(name, commit, tips, replacing)
                if expected == commit or await self._push(remote, free, commit, expected):
                    return free
        raise TemporaryFailure(f"Could not find a free name for the branch {name}.")

    async def advance(self, name: str, commit: str, expected: str) -> str:
        """Move a branch from `expected` to `commit`. Raises BranchMoved if someone else moved it.

        Other people's commits stay ancestors of ours: only a tip that we wrote may be replaced.
        """
        async with self._remote(GIT_PUSH) as remote:
            await asyncio.to_thread(check_branch, name)
            tip = (await self._tips(remote, name)).get(name)
            if tip == commit:
                return name
            if tip is None:
                raise BranchMoved(f"The branch {name} was deleted.", hint="Repeat the command to start again.")
            may_move = tip == expected and await self._may_leave(tip, commit)
            if not may_move or not await self._push(remote, name, commit, expected):
                raise BranchMoved(
                    f"Someone else has pushed to {name}; agent-fix never overwrites their commits.",
                    hint="Repeat the command to start from the current branch.",
                )
        return name

    async def signed(self, commit: str, key: SigningKey | None) -> str:
        """The same commit with a signature: by the operator's key, or else by GitHub. Always the same one.

        Raises NeedsHumanAction if it cannot be signed.
        """
        try:
            if key is not None:
                return await asyncio.to_thread(self.store.sign, commit, key)
            known = await asyncio.to_thread(self.store.signed, commit)
            if known is not None:
                return known
            made = await create_signed_commit(self._api, self.store, commit)
            async with self._remote(GIT_FETCH) as remote:
                await asyncio.to_thread(fetch, self.store, remote, made, cut=False)
            await asyncio.to_thread(self.store.keep_signed, commit, made)
        except GitError as error:
            raise NeedsHumanAction(
                f"The commit could not be signed: {error}", hint="Check AGENT_FIX_SIGNING_KEY, and that git can use it."
            ) from error
        return made

    async def remove(self, name: str, commit: str) -> None:
        """Delete a branch if it still holds this commit."""
        async with self._remote(GIT_PUSH) as remote:
            await asyncio.to_thread(check_branch, name)
            if (await self._tips(remote, name)).get(name) == commit:
                await self._push(remote, name, None, commit)

    async def _tips(self, remote: Remote, prefix: str) -> dict[str, str]:
        """The branches with this prefix, with their commits. Repeated as other reads, but within the time of one."""
        until = monotonic() + QUICK_TIMEOUT

        async def ask() -> dict[str, str]:
            left = max(1.0, until - monotonic())
            try:
                return await asyncio.to_thread(branch_tips, self.store, remote, prefix, timeout=left)
            except GitError as error:
                raise self._fetch_failure(error) from None

        return await self._api.with_retries(ask)

    async def _push(self, remote: Remote, name: str, commit: str | None, expected: str | None) -> bool:
        """Push; without a commit, delete the branch. False if someone else moved it. Raises ForgeError if refused."""
        async with self._api.pace.turn(mutation=True):
            pushed = await asyncio.to_thread(push, self.store, remote, name, commit, expected=expected)
        if pushed.refused and not pushed.stale:
            raise self._failure("push", f"GitHub refused the branch {name}", pushed.refused)
        return not pushed.stale

    async def _may_leave(self, tip: str, commit: str) -> bool:
        below = await asyncio.to_thread(self.store.parents, commit)
        if tip in below or tip in await asyncio.to_thread(self.store.parents, below[0]):  # of a merge on our commit
            return True
        return await RepositoryReader(self._api).author_address(tip) == self._address

    @asynccontextmanager
    async def _remote(self, call: Call) -> AsyncIterator[Remote]:
        """The repository, with a token for this call that is revoked afterwards. Git's errors become ForgeError."""
        repository, host = self._api.repository, self._api.app.host
        token = await self._api.token(call)
        try:
            yield Remote(host.git_url(repository.owner, repository.name), token, host.git_variables)
        except GitError as error:
            raise self._fetch_failure(error) from None
        finally:
            await self._api.revoke_token(token)

    def _fetch_failure(self, error: GitError) -> ForgeError:
        return self._failure("git", "Git could not reach GitHub", str(error))

    def _failure(self, place: str, began: str, message: str) -> ForgeError:
        failure = git_failure(place, began, message, self._api.app.now())
        if isinstance(failure, RateLimited):
            self._api.pace.pause_until(failure.until)
        return failure


def _name_for(name: str, commit: str, tips: Mapping[str, str], ours: Collection[str]) -> tuple[str, str | None]:
    """The branch's name and what it holds: the commit, one of ours to replace, or None for a new branch."""
    for wanted in (commit, *ours):
        found, there = free_name(name, wanted, tips)
        if there:
            return found, wanted
    return free_name(name, commit, tips)[0], None
