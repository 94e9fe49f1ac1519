"""Implements `app.github.base.ForgeEffects` for GitHub: each effect looks for its result before it creates one."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar
from urllib.parse import quote

from app.github import calls, models
from app.github.base import (
    CommentState,
    NeedsHumanAction,
    NewCheckRun,
    NewPullRequest,
    NoAccess,
    Reaction,
    ReactionTarget,
    TemporaryFailure,
    has_marker,
    with_marker,
)
from app.github.branches import BranchesApi
from app.github.calls import Call
from app.github.connection import Connection, RepositoryId
from app.github.reader import RepositoryReader
from app.github.refusals import TEAM_HINT, AlreadyThere, NoDrafts, NotSeenYet
from app.github.repository_api import RepositoryApi, find_bot_account
from app.repo.git_store import GitStore

T = TypeVar("T")

BY_TITLE = "Draft: "
"""The title prefix in repositories that have no drafts."""
_BY_TITLE_MARK = "<!-- agent-fix:draft-by-title -->"
_BY_TITLE_NOTE = f"""{_BY_TITLE_MARK}
> [!NOTE]
> **This is a draft by title only.** This repository's plan has no draft pull requests. Remove “{BY_TITLE.strip()}”
> from the title when you have reviewed the change."""
MAX_SUMMARY = 65_000
_REACT = {
    "issue": calls.REACT_TO_ISSUE,
    "comment": calls.REACT_TO_COMMENT,
    "review comment": calls.REACT_TO_PULL_COMMENT,
}


def draft_by_title(wanted: NewPullRequest) -> NewPullRequest:
    """The same pull request, for a repository without drafts."""
    title = wanted.title if wanted.title.startswith(BY_TITLE) else BY_TITLE + wanted.title
    return replace(wanted, title=title, body=f"{_BY_TITLE_NOTE}\n\n{wanted.body}")


class GitHubForge:
    """One issue or pull request of one repository, and the branches of that repository."""

    def __init__(self, reader: RepositoryReader, store: GitStore, bot: models.BotAccount, number: int) -> None:
        self.number = number
        self.bot = bot
        self.reads = reader
        self.branches = BranchesApi(reader.api, store, bot.person.email)
        self._api = reader.api

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

    async def ensure_pull_request(self, wanted: NewPullRequest) -> str:
        """Open a draft, or update title and body of the open one. Raises NeedsHumanAction if it was closed."""
        there = await self.reads.pull_request_of(wanted.branch)
        if there is None:
            return await self._make(wanted)
        if not there.open:
            what = "merged" if there.merged else "closed"
            raise NeedsHumanAction(f"Pull request #{there.number} was {what}; agent-fix does not reopen it.")
        if _BY_TITLE_MARK in there.body:
            titled = draft_by_title(wanted)
            wanted = titled if there.title.startswith(BY_TITLE) else replace(titled, title=wanted.title)
        if (there.title, there.body) != (wanted.title, wanted.body):
            body = {"title": wanted.title, "body": wanted.body}
            await self._api.change(models.PullRequest, calls.UPDATE_PULL, there.number, body=body)
        return there.url

    async def ensure_labels_and_reviewers(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        """Add missing labels and review requests, and remove nothing. Returns the address."""
        there = await self._open(await self._api.until_visible(lambda: self._listed(branch)))
        await self._add_labels(there.number, labels)
        if reviewers:
            await self._request_reviews(there.number, reviewers)
        return there.url

    async def amend_pull_request(self, amend: Callable[[str], str]) -> str:
        """Change the body of our pull request if it differs. Returns the address."""
        there = await self._open(await self.reads.pull_request(self.number))
        body = amend(there.body)
        if body != there.body:
            await self._api.change(models.PullRequest, calls.UPDATE_PULL, self.number, body={"body": body})
        return there.url

    async def update_draft_status(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        url, there = "", await self.reads.pull_request_of(branch)
        if there is not None and there.open and there.author == self.bot.user:
            url, wanted = there.url, dict[str, str]()
            if (body := amend(there.body)) != there.body:
                wanted["body"] = body
            if close and there.head == commit:
                wanted["state"] = "closed"
            if wanted:
                await self._api.change(models.PullRequest, calls.UPDATE_PULL, there.number, body=wanted)
        if close:
            await self.branches.remove(branch, commit)
        return url

    async def _make(self, wanted: NewPullRequest) -> str:
        try:
            return await self._open_or_find(wanted, draft=True)
        except NoDrafts:
            if not wanted.verified:
                raise
            return await self._open_or_find(draft_by_title(wanted), draft=False)

    async def _open_or_find(self, wanted: NewPullRequest, *, draft: bool) -> str:
        """If the answer is lost or says that one exists, return the existing one."""
        body = {
            "title": wanted.title,
            "body": wanted.body,
            "head": wanted.branch,
            "base": wanted.base,
            "draft": draft,
            "maintainer_can_modify": True,
        }
        try:
            return (await self._api.change(models.PullRequest, calls.CREATE_PULL, body=body)).url
        except AlreadyThere:
            return (await self._api.until_visible(lambda: self._listed(wanted.branch, {True}))).url
        except TemporaryFailure:
            there = await self.reads.pull_request_of(wanted.branch)
            if there is None or not there.open:
                raise
            return there.url

    async def _listed(self, branch: str, is_open: Collection[bool] = (True, False)) -> models.PullRequest:
        """The pull request of a branch that must have one. Raises NotSeenYet if GitHub does not list it."""
        there = await self.reads.pull_request_of(branch)
        if there is None or there.open not in is_open:
            raise NotSeenYet(f"GitHub does not list the pull request of {branch}.")
        return there

    async def _open(self, there: models.PullRequest | None) -> models.PullRequest:
        if there is None:
            raise NeedsHumanAction("The pull request no longer exists.")
        if there.author != self.bot.user:
            raise NeedsHumanAction(f"Pull request #{there.number} is not agent-fix's own; its text is not changed.")
        if not there.open:
            raise NeedsHumanAction(f"Pull request #{there.number} was {'merged' if there.merged else 'closed'}.")
        return there

    async def _request_reviews(self, number: int, reviewers: Sequence[str]) -> None:
        """Request missing reviews. Raises NeedsHumanAction with whom GitHub refused, and its words."""
        requested = await self._api.read(models.RequestedReviewersResponse, calls.LIST_REVIEWERS, number)
        reviews = await self._api.pages(models.PullRequestReview, calls.LIST_REVIEWS, number)
        there = {account.login.casefold() for account in requested.users}
        there |= {team.casefold() for team in requested.teams}
        there |= {review.author_name.casefold() for review in reviews if review.author}
        refused = dict[str, NeedsHumanAction | NoAccess]()
        for reviewer in reviewers:
            _, _, team = reviewer.partition("/")
            if (team or reviewer).casefold() in there:
                continue
            call = calls.REQUEST_TEAM_REVIEW if team else calls.REQUEST_REVIEWERS
            body = {"team_reviewers": [team]} if team else {"reviewers": [reviewer]}
            try:
                await self._api.change(dict, call, number, body=body)
            except (NeedsHumanAction, NoAccess) as error:
                refused[reviewer] = error
        if refused:
            first = next(iter(refused.values()))
            hint = TEAM_HINT if any("/" in reviewer for reviewer in refused) else first.hint
            raise NeedsHumanAction(f"No review was requested from {', '.join(refused)}. {first.message}", hint=hint)

    async def ensure_comment(self, key: str, body: str, state: CommentState | None = None) -> str:
        text = with_marker(body, key, state)
        there = await self._own(calls.LIST_ISSUE_COMMENTS, key)
        if there is None:
            create = self._api.change(models.IssueComment, calls.CREATE_COMMENT, self.number, body={"body": text})
            there = await _created(create, lambda: self._own(calls.LIST_ISSUE_COMMENTS, key))
        elif there.body != text:
            await self._api.change(models.IssueComment, calls.UPDATE_COMMENT, there.id, body={"body": text})
        return there.url

    async def ensure_reaction(self, target: ReactionTarget, content: Reaction) -> None:
        """GitHub itself keeps one reaction of each kind per account."""
        await self._api.change(dict, _REACT[target.kind], target.id, body={"content": content})

    async def ensure_labels(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        """Add missing labels and remove existing ones; all other labels stay."""
        there = await self._add_labels(self.number, add)
        for label in remove:
            if label.casefold() in there:
                await self._api.remove(calls.REMOVE_LABEL, self.number, there[label.casefold()])

    async def _add_labels(self, number: int, labels: Iterable[str]) -> dict[str, str]:
        """Add missing labels; returns the names of those that were there, by their names in lower case."""
        found = await self._api.pages(models.LabelResponse, calls.LIST_ISSUE_LABELS, number)
        there = {label.name.casefold(): label.name for label in found}
        if missing := [label for label in labels if label.casefold() not in there]:
            await self._api.change(list, calls.ADD_LABELS, number, body={"labels": missing})
        return there

    async def ensure_check_run(self, wanted: NewCheckRun) -> str:
        title, summary = wanted.title[:255], wanted.summary[:MAX_SUMMARY]
        body = {
            "name": wanted.name,
            "external_id": wanted.key,
            "status": "completed" if wanted.conclusion else "in_progress",
            "output": {"title": title, "summary": summary},
        }
        if wanted.conclusion:
            body["conclusion"] = wanted.conclusion
        there = await self._check_run(wanted)
        if there is None:
            body["head_sha"] = wanted.commit
            create = self._api.change(models.CheckRunResponse, calls.CREATE_CHECK_RUN, body=body)
            there = await _created(create, lambda: self._check_run(wanted))
        elif (there.title, there.summary, there.conclusion) != (title, summary, wanted.conclusion):
            there = await self._api.change(models.CheckRunResponse, calls.UPDATE_CHECK_RUN, there.id, body=body)
        return there.html_url or ""

    async def _check_run(self, wanted: NewCheckRun) -> models.CheckRunResponse | None:
        params = {"check_name": wanted.name, "filter": "all"}
        if app := self._api.app.app_id:
            params["app_id"] = str(app)
        found = await self._api.pages(models.CheckRunResponse, calls.LIST_CHECK_RUNS, wanted.commit, params=params)
        return next((item for item in found if item.external_id == wanted.key), None)

    async def ensure_reply(self, comment: int, key: str, body: str) -> str:
        """`comment` is the id of any comment of the thread."""
        there = await self._own(calls.LIST_PULL_COMMENTS, key)
        if there is None:
            text = {"body": with_marker(body, key)}
            call = calls.REPLY_TO_PULL_COMMENT
            create = self._api.change(models.IssueComment, call, self.number, comment, body=text)
            there = await _created(create, lambda: self._own(calls.LIST_PULL_COMMENTS, key))
        return there.url

    async def ensure_resolved(self, thread: str) -> None:
        """Resolve a thread; does nothing if it is gone."""
        answer = await self._api.graphql(models.ThreadStateAnswer, calls.THREAD_STATE, {"id": thread})
        if answer.is_resolved is False:
            await self._api.graphql(dict, calls.RESOLVE_THREAD, {"id": thread})

    async def _own(self, listing: Call, key: str) -> models.IssueComment | None:
        """Our own comment with the key's marker. Someone else's comment with a copied marker does not count."""
        found = await self._api.pages(models.IssueComment, listing, self.number)
        return next((item for item in found if item.author == self.bot.user and has_marker(item.body, key)), None)


async def _created(create: Awaitable[T], find: Callable[[], Awaitable[T | None]]) -> T:
    """The created thing. After a failure it may exist all the same, and is looked for."""
    try:
        return await create
    except (TemporaryFailure, NeedsHumanAction):
        there = await find()
        if there is None:
            raise
        return there


async def open_forge(
    app: Connection, installation: int, repository: RepositoryId, store: GitStore, number: int
) -> GitHubForge:
    """The forge for one issue or pull request, by the repository's current name."""
    reader, _ = await RepositoryReader(RepositoryApi(app, installation, repository)).by_current_name()
    return GitHubForge(reader, store, await find_bot_account(reader.api), number)
