"""Reads what a job needs to know from GitHub: permissions, issues, comments, reviews, files, pull requests."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from app.core.task import Person
from app.github.calls import (
    COMPARE_COMMITS,
    CREATE_ISSUE,
    GET_COMMIT,
    GET_CONTENT,
    GET_ISSUE,
    GET_OTHER_APP,
    GET_PERMISSION,
    GET_PULL,
    GET_REF,
    GET_REPOSITORY,
    GET_REPOSITORY_BY_ID,
    GET_USER_BY_ID,
    LINKED_PULL_REQUESTS,
    LIST_ISSUE_COMMENTS,
    LIST_ISSUES,
    LIST_MATCHING_REFS,
    LIST_PULL_COMMITS,
    LIST_PULL_FILES,
    LIST_PULLS,
    LIST_REVIEWS,
    SEARCH_ISSUES,
)
from app.github.comments import has_text, with_marker
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.graphql import LinkedAnswer, LinkedPullRequest
from app.github.http_client import NotFoundOnGitHub
from app.github.models import (
    NOT_SUBMITTED,
    Account,
    ActorPermission,
    AppResponse,
    ChangedFile,
    ComparisonResponse,
    DirectoryEntryResponse,
    GitHubIssue,
    IssueComment,
    PullRequest,
    PullRequestCommit,
    PullRequestReview,
    ReferenceResponse,
    Repository,
)
from app.github.repository_api import RepositoryApi

CLOCKS_DIFFER = timedelta(hours=1)


async def ensure_issue(api: RepositoryApi, title: str, body: str, *, key: str, login: str, since: datetime) -> int:
    """The number of our issue with this key: one that was opened since then, or else a new one."""
    earliest = since.astimezone(UTC) - CLOCKS_DIFFER
    params = {"state": "all", "since": f"{earliest:%Y-%m-%dT%H:%M:%SZ}"}
    found = await api.pages(GitHubIssue, LIST_ISSUES, params=params)
    there = next((item for item in found if item.author_name == login and has_text(item.body, key)), None)
    if there is None:
        text = {"title": title, "body": with_marker(body, key)}
        there = await api.change(GitHubIssue, CREATE_ISSUE, body=text)
    return there.number


_PERMISSIONS: dict[str, str] = {"admin": "admin", "write": "write", "read": "read"}


class RepositoryReader:
    """Reads one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def repository(self) -> Repository:
        return await self._api.read(Repository, GET_REPOSITORY)

    async def repository_by_id(self) -> Repository:
        """The repository by its id, whatever its current name."""
        return await self._api.read(Repository, GET_REPOSITORY_BY_ID, self._api.repository.id)

    async def installation(self) -> int | None:
        """The repository's installation according to GitHub; None if there is none or it is suspended."""
        repository = self._api.repository
        return await self._api.auth.serves(repository.owner, repository.name)

    async def actor(self, user: int) -> ActorPermission:
        """What an account may do here, by id: a login can change hands between two requests."""
        account = await self._api.read(Account, GET_USER_BY_ID, user)
        found = await self._api.find(ActorPermission, GET_PERMISSION, account.login)
        same = found is not None and found.id == user == account.id
        permission = _PERMISSIONS.get(found.permission, "none") if found and same else "none"
        address = f"{user}+{account.login}@{self._api.app.host.noreply}"
        person = Person(name=account.name or account.login, email=address)
        return ActorPermission(id=user, login=account.login, kind=account.kind, permission=permission, person=person)

    async def application(self, slug: str) -> int | None:
        """The id of another App; None if it is private or gone."""
        try:
            return (await self._api.read(AppResponse, GET_OTHER_APP, slug)).id
        except NotFoundOnGitHub:
            return None

    async def issue(self, number: int) -> GitHubIssue | None:
        return await self._api.find(GitHubIssue, GET_ISSUE, number)

    async def labelled(self, label: str) -> tuple[GitHubIssue, ...]:
        """Open issues and pull requests with this label, least recently changed first."""
        return await self._open_issues({"labels": label})

    async def changed_since(self, since: datetime) -> tuple[GitHubIssue, ...]:
        """Open issues and pull requests that changed at this time or later, least recently changed first."""
        return await self._open_issues({"since": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})

    async def _open_issues(self, chosen: Mapping[str, str]) -> tuple[GitHubIssue, ...]:
        params = {**chosen, "state": "open", "sort": "updated", "direction": "asc"}
        return tuple(await self._api.pages(GitHubIssue, LIST_ISSUES, params=params))

    async def searched(self, query: str) -> tuple[GitHubIssue, ...]:
        """Up to a hundred open issues that match GitHub's search, in its order.

        `sort:reactions-+1-desc` and the like are parsed here, because the API takes them as parameters.
        """
        words = query.split()
        sort = next((word for word in words if word.startswith("sort:")), "").removeprefix("sort:")
        order = "asc" if sort.endswith("-asc") else "desc"
        order_params = {"sort": sort.removesuffix(f"-{order}"), "order": order} if sort else {}
        repository = self._api.repository
        terms = [word for word in words if not word.startswith(("sort:", "repo:", "org:", "user:"))]
        text = " ".join([*terms, f"repo:{repository.owner}/{repository.name}", "is:issue", "is:open"])
        query_params: dict[str, str | int] = {"q": text, "per_page": 100, **order_params}
        return tuple(await self._api.read(list[GitHubIssue], SEARCH_ISSUES, params=query_params))

    async def branches(self, prefix: str) -> tuple[str, ...]:
        """Branches whose names start with a prefix."""
        found = await self._api.read(list[ReferenceResponse], LIST_MATCHING_REFS, f"heads/{prefix}")
        return tuple(item.ref.removeprefix("refs/heads/") for item in found)

    async def comments(self, number: int, before: datetime) -> tuple[IssueComment, ...]:
        """Comments that existed unchanged before that moment."""
        found = await self._api.pages(IssueComment, LIST_ISSUE_COMMENTS, number)
        return tuple(item for item in found if max(item.created_at, item.updated_at or item.created_at) < before)

    async def pull_request(self, number: int) -> PullRequest | None:
        return await self._api.find(PullRequest, GET_PULL, number)

    async def pull_request_of(self, branch: str) -> PullRequest | None:
        """The open pull request of a branch of this repository, else the newest closed one."""
        params = {"head": f"{self._api.repository.owner}:{branch}", "state": "all"}
        found = await self._api.pages(PullRequest, LIST_PULLS, params=params)
        ours = self._api.repository.id
        same = [item for item in found if (item.head_branch, item.head_repository) == (branch, ours)]
        return max(same, key=lambda item: (item.open, item.number), default=None)

    async def reviews(self, number: int, before: datetime | None = None) -> tuple[PullRequestReview, ...]:
        """Reviews submitted before that moment, or all."""
        found = await self._api.pages(PullRequestReview, LIST_REVIEWS, number)
        return tuple(item for item in found if item.submitted_at < (before or NOT_SUBMITTED))

    async def changed_files(self, number: int) -> tuple[ChangedFile, ...]:
        return tuple(await self._api.pages(ChangedFile, LIST_PULL_FILES, number))

    async def file(self, path: str, ref: str = "") -> bytes | None:
        """A file's bytes on the default branch or at `ref`; None if there is no such file."""
        return await self._api.content(GET_CONTENT, path, params={"ref": ref} if ref else None)

    async def files_in(self, directory: str) -> tuple[str, ...]:
        """The paths of a directory's files on the default branch; none if there is no such directory."""
        found = await self._api.find(list[DirectoryEntryResponse], GET_CONTENT, directory)
        return tuple(item.path for item in found or () if item.type == "file")

    async def head(self, branch: str) -> str | None:
        """The id of a branch's newest commit; None if there is no such branch."""
        found = await self._api.find(ReferenceResponse, GET_REF, f"heads/{branch}")
        return found.commit if found else None

    async def author_address(self, commit: str) -> str:
        """The author's email address in a commit."""
        return (await self._api.read(PullRequestCommit, GET_COMMIT, commit)).email


MAX_PAGES = 5
"""Pages of a hundred open pull requests."""


class PullRequestsApi:
    """The pull requests of one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def open(self, *, base: str = "") -> tuple[PullRequest, ...]:
        """The open ones, or those against one base; newest change first, and only the newest if there are very many."""
        params = {"state": "open", "sort": "updated", "direction": "desc", **({"base": base} if base else {})}
        return tuple(await self._api.pages(PullRequest, LIST_PULLS, params=params, most=MAX_PAGES))

    async def linked(self, issue: int) -> tuple[LinkedPullRequest, ...]:
        """Open pull requests of this repository that will close this issue when merged.

        Leaves out those that GitHub does not show us; an older Enterprise Server shows none.
        """
        repository = self._api.repository
        variables = {"owner": repository.owner, "name": repository.name, "number": issue}
        try:
            answer = await self._api.graphql(LinkedAnswer, LINKED_PULL_REQUESTS, variables, partial=True)
        except (NeedsHumanAction, NoAccess):
            return ()
        return tuple(
            node
            for node in answer.pull_requests or ()
            if node is not None and node.state == "OPEN" and node.repository == answer.repository
        )

    async def commits(self, number: int) -> tuple[PullRequestCommit, ...]:
        """The commits of a pull request, oldest first; GitHub lists at most 250."""
        return tuple(await self._api.pages(PullRequestCommit, LIST_PULL_COMMITS, number))

    async def merge_base(self, base: str, head: str) -> str:
        """The merge base of two commits. Raises NeedsHumanAction or NoAccess if there is none."""
        found = await self._api.read(ComparisonResponse, COMPARE_COMMITS, f"{base}...{head}")
        return found.merge_base
