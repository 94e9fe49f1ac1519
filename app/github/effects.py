"""Implements `app.github.base.ForgeEffects` for GitHub: each effect looks for its result before it creates one."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from urllib.parse import quote

from app.github import api_models
from app.github.base import NewCheckRun, NewPullRequest, Reaction, ReactionTarget
from app.github.branches import BranchesApi
from app.github.calls import (
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
from app.github.checks import ChecksApi
from app.github.connection import Connection, RepositoryId
from app.github.errors import NeedsHumanAction, TemporaryFailure
from app.github.identity import BotUser, find_bot_user
from app.github.markers import has_text, marked
from app.github.pull_request_edits import PullRequestEditor
from app.github.pull_requests import PullRequestsApi
from app.github.reader import RepositoryReader
from app.github.repository_api import RepositoryApi
from app.github.review_threads import ReviewThreadsApi
from app.repo.git_store import GitStore

_REACT = {"issue": REACT_TO_ISSUE, "comment": REACT_TO_COMMENT, "review comment": REACT_TO_PULL_COMMENT}


class GitHubForge:
    """One issue or pull request of one repository, and the branches of that repository."""

    def __init__(self, api: RepositoryApi, store: GitStore, bot: BotUser, number: int) -> None:
        self.number = number
        self.bot = bot
        self.reads = RepositoryReader(api)
        self.pulls = PullRequestsApi(api)
        self.checks = ChecksApi(api)
        self.threads = ReviewThreadsApi(api, bot.login)
        self.branches = BranchesApi(api, store, bot.person.email)
        self._proposals = PullRequestEditor(api, self.reads, bot.login)
        self._api = api

    @property
    def page(self) -> str:
        """GitHub redirects a pull request's address to the issue if the number is an issue's."""
        return f"{self._site}/pull/{self.number}"

    @property
    def _site(self) -> str:
        repository = self._api.repository
        return f"{self._api.app.host.server_url.rstrip('/')}/{repository.owner}/{repository.name}"

    def comparison(self, base: str, branch: str) -> str:
        return f"{self._site}/compare/{quote(base)}...{quote(branch)}?expand=1"

    async def tip(self, branch: str) -> str:
        return await self.reads.head(branch) or ""

    async def ensure_branch(self, name: str, commit: str) -> str:
        return await self.branches.ensure(name, commit)

    async def advance_branch(self, name: str, commit: str, expected: str) -> str:
        return await self.branches.advance(name, commit, expected)

    async def replace_branch(self, name: str, commit: str, ours: Collection[str]) -> str:
        return await self.branches.ensure(name, commit, replacing=ours)

    async def update_draft_status(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        url = await self._proposals.update_status(branch, commit, amend, close=close)
        if close:
            await self.branches.remove(branch, commit)
        return url

    async def ensure_pull_request(self, wanted: NewPullRequest) -> str:
        return await self._proposals.ensure(wanted)

    async def ensure_labels_and_reviewers(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        return await self._proposals.label_and_request_review(branch, labels, reviewers)

    async def amend_pull_request(self, amend: Callable[[str], str]) -> str:
        return await self._proposals.amend(self.number, amend)

    async def ensure_comment(self, key: str, body: str) -> str:
        text = marked(body, key)
        there = await self._comment(key)
        if there is None:

            async def write() -> str:
                made = await self._api.change(
                    api_models.CommentResponse, CREATE_COMMENT, self.number, body={"body": text}
                )
                return made.html_url

            return await _once(write, lambda: self._address(key))
        if there.body != text:
            await self._api.change(api_models.CommentResponse, UPDATE_COMMENT, there.id, body={"body": text})
        return there.html_url

    async def ensure_reaction(self, target: ReactionTarget, content: Reaction) -> None:
        """GitHub itself keeps one reaction of each kind per account."""
        await self._api.change(dict, _REACT[target.kind], target.id, body={"content": content})

    async def ensure_labels(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Add missing labels and remove existing ones; all other labels stay."""
        found = await self._api.pages(api_models.LabelResponse, LIST_ISSUE_LABELS, self.number)
        there = {label.name.casefold(): label.name for label in found}
        missing = [label for label in add if label.casefold() not in there]
        if missing:
            await self._api.change(list, ADD_LABELS, self.number, body={"labels": missing})
        for label in remove:
            if label.casefold() in there:
                await self._api.remove(REMOVE_LABEL, self.number, there[label.casefold()])

    async def ensure_check_run(self, wanted: NewCheckRun) -> str:
        return await self.checks.ensure(wanted)

    async def ensure_reply(self, comment: int, key: str, body: str) -> str:
        return await self.threads.ensure_reply(self.number, comment, key, body)

    async def ensure_resolved(self, thread: str) -> None:
        await self.threads.ensure_resolved(thread)

    async def _address(self, key: str) -> str:
        there = await self._comment(key)
        return there.html_url if there else ""

    async def _comment(self, key: str) -> api_models.CommentResponse | None:
        """Our own comment with the key's marker. Someone else's comment with a copied marker does not count."""
        found = await self._api.pages(api_models.CommentResponse, LIST_ISSUE_COMMENTS, self.number)
        ours = (item for item in found if item.user is not None and item.user.login == self.bot.login)
        return next((item for item in ours if has_text(item.body or "", key)), None)


async def open_forge(
    app: Connection, installation: int, repository: RepositoryId, store: GitStore, number: int
) -> GitHubForge:
    """The forge for one issue or pull request."""
    api = RepositoryApi(app, installation, repository)
    return GitHubForge(api, store, await find_bot_user(api), number)


async def _once(make: Callable[[], Awaitable[str]], find: Callable[[], Awaitable[str]]) -> str:
    """Create it. If the answer was lost or says that it exists, return the existing one's address."""
    try:
        return await make()
    except (TemporaryFailure, NeedsHumanAction):
        if there := await find():
            return there
        raise
