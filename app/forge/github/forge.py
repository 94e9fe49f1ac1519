"""GitHub as `app.forge.base.Forge`: what becomes of an issue there, each effect looked for before it is made."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from urllib.parse import quote

from app.forge.base import CheckRun, PullRequest, Reaction, Target
from app.forge.errors import NeedsHuman, TryAgain
from app.forge.github import wire
from app.forge.github.branches import Branches
from app.forge.github.calls import (
    ADD_LABELS,
    CREATE_COMMENT,
    LIST_ISSUE_COMMENTS,
    LIST_ISSUE_LABELS,
    REACT_TO_COMMENT,
    REACT_TO_ISSUE,
    REACT_TO_PULL_COMMENT,
    REMOVE_LABEL,
    UPDATE_COMMENT,
)
from app.forge.github.checks import Checks
from app.forge.github.connection import Connection, RepositoryId
from app.forge.github.door import Door
from app.forge.github.identity import Bot, who_we_are
from app.forge.github.proposals import Proposals
from app.forge.github.reads import Reader
from app.forge.github.threads import Threads
from app.forge.markers import marked, says
from app.gitstore import GitStore

_REACT = {"issue": REACT_TO_ISSUE, "comment": REACT_TO_COMMENT, "review comment": REACT_TO_PULL_COMMENT}


class GitHubForge:
    """One issue or pull request of one repository, and the branches of that repository."""

    def __init__(self, door: Door, store: GitStore, bot: Bot, number: int) -> None:
        self.number = number
        self.bot = bot
        self.reads = Reader(door)
        self.checks = Checks(door)
        self.threads = Threads(door, bot.login)
        self.branches = Branches(door, store, bot.person.email)
        self._proposals = Proposals(door, self.reads, bot.login)
        self._door = door

    @property
    def page(self) -> str:
        """Where people look at it; GitHub leads from an issue's address to a pull request's."""
        return f"{self._site}/pull/{self.number}"

    @property
    def _site(self) -> str:
        repository = self._door.repository
        return f"{self._door.app.host.server_url.rstrip('/')}/{repository.owner}/{repository.name}"

    def comparison(self, base: str, branch: str) -> str:
        return f"{self._site}/compare/{quote(base)}...{quote(branch)}?expand=1"

    async def ensure_branch(self, name: str, commit: str) -> str:
        return await self.branches.ensure(name, commit)

    async def advance_branch(self, name: str, commit: str, expected: str) -> str:
        return await self.branches.advance(name, commit, expected)

    async def replace_branch(self, name: str, commit: str, ours: Collection[str]) -> str:
        return await self.branches.ensure(name, commit, replacing=ours)

    async def tell_draft(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        url = await self._proposals.tell(branch, commit, amend, close=close)
        if close:
            await self.branches.remove(branch, commit)
        return url

    async def ensure_pull_request(self, wanted: PullRequest) -> str:
        return await self._proposals.ensure(wanted)

    async def ensure_dress(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        return await self._proposals.dress(branch, labels, reviewers)

    async def amend_pull_request(self, amend: Callable[[str], str]) -> str:
        return await self._proposals.amend(self.number, amend)

    async def ensure_comment(self, key: str, body: str) -> str:
        text = marked(body, key)
        there = await self._comment(key)
        if there is None:

            async def write() -> str:
                made = await self._door.change(wire.Comment, CREATE_COMMENT, self.number, body={"body": text})
                return made.html_url

            return await _once(write, lambda: self._address(key))
        if there.body != text:
            await self._door.change(wire.Comment, UPDATE_COMMENT, there.id, body={"body": text})
        return there.html_url

    async def ensure_reaction(self, target: Target, content: Reaction) -> None:
        """GitHub itself keeps one reaction of a kind for each account."""
        await self._door.change(dict, _REACT[target.kind], target.id, body={"content": content})

    async def ensure_labels(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Have the first, have not the second; labels of others stay."""
        found = await self._door.pages(wire.Label, LIST_ISSUE_LABELS, self.number)
        there = {label.name.casefold(): label.name for label in found}
        missing = [label for label in add if label.casefold() not in there]
        if missing:
            await self._door.change(list, ADD_LABELS, self.number, body={"labels": missing})
        for label in remove:
            if label.casefold() in there:
                await self._door.remove(REMOVE_LABEL, self.number, there[label.casefold()])

    async def ensure_check_run(self, wanted: CheckRun) -> str:
        return await self.checks.ensure(wanted)

    async def ensure_reply(self, comment: int, key: str, body: str) -> str:
        return await self.threads.ensure_reply(self.number, comment, key, body)

    async def ensure_resolved(self, thread: str) -> None:
        await self.threads.ensure_resolved(thread)

    async def _address(self, key: str) -> str:
        there = await self._comment(key)
        return there.html_url if there else ""

    async def _comment(self, key: str) -> wire.Comment | None:
        """Our own comment with the key's mark. A stranger who copies the mark is not us."""
        found = await self._door.pages(wire.Comment, LIST_ISSUE_COMMENTS, self.number)
        ours = (item for item in found if item.user is not None and item.user.login == self.bot.login)
        return next((item for item in ours if says(item.body or "", key)), None)


async def open_forge(
    app: Connection, installation: int, repository: RepositoryId, store: GitStore, number: int
) -> GitHubForge:
    """The forge for one issue or pull request."""
    door = Door(app, installation, repository)
    return GitHubForge(door, store, await who_we_are(door), number)


async def _once(make: Callable[[], Awaitable[str]], look: Callable[[], Awaitable[str]]) -> str:
    """Make it; where the answer was lost, or says that it exists, look whether it is there after all."""
    try:
        return await make()
    except (TryAgain, NeedsHuman):
        if there := await look():
            return there
        raise
