"""Reads what a job needs to know from GitHub: permissions, issues, comments, reviews, files, pull requests."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from app.core.task import Person
from app.github import api_models
from app.github.auth import repository_facts
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
from app.github.comments import GHOST, has_text, review_facts, with_marker
from app.github.errors import NeedsHumanAction, NoAccess
from app.github.graphql import LinkedAnswer
from app.github.http_client import NotFoundOnGitHub
from app.github.models import (
    ActorPermission,
    ChangedFile,
    GitHubIssue,
    IssueComment,
    LinkedPullRequest,
    PullRequest,
    PullRequestCommit,
    PullRequestReview,
    Repository,
)
from app.github.repository_api import RepositoryApi

CLOCKS_DIFFER = timedelta(hours=1)


async def ensure_issue(api: RepositoryApi, title: str, body: str, *, key: str, login: str, since: datetime) -> int:
    """The number of our issue with this key: one that was opened since then, or else a new one."""
    earliest = since.astimezone(UTC) - CLOCKS_DIFFER
    params = {"state": "all", "since": f"{earliest:%Y-%m-%dT%H:%M:%SZ}"}
    found = await api.pages(api_models.IssueResponse, LIST_ISSUES, params=params)
    ours = (item for item in found if item.user is not None and item.user.login == login)
    there = next((item for item in ours if has_text(item.body or "", key)), None)
    if there is None:
        text = {"title": title, "body": with_marker(body, key)}
        there = await api.change(api_models.IssueResponse, CREATE_ISSUE, body=text)
    return there.number


_PERMISSIONS: dict[str, str] = {"admin": "admin", "write": "write", "read": "read"}


class RepositoryReader:
    """Reads one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def repository(self) -> Repository:
        return repository_facts(await self._api.read(api_models.RepositoryResponse, GET_REPOSITORY))

    async def repository_by_id(self) -> Repository:
        """The repository by its id, whatever its current name."""
        return repository_facts(
            await self._api.read(api_models.RepositoryResponse, GET_REPOSITORY_BY_ID, self._api.repository.id)
        )

    async def installation(self) -> int | None:
        """The repository's installation according to GitHub; None if there is none or it is suspended."""
        repository = self._api.repository
        return await self._api.auth.serves(repository.owner, repository.name)

    async def actor(self, user: int) -> ActorPermission:
        """What an account may do here, by id: a login can change hands between two requests."""
        account = await self._api.read(api_models.AccountResponse, GET_USER_BY_ID, user)
        found = await self._api.find(api_models.CollaboratorResponse, GET_PERMISSION, account.login)
        same = found is not None and found.user is not None and found.user.id == user == account.id
        permission = _PERMISSIONS.get(found.permission, "none") if found and same else "none"
        address = f"{user}+{account.login}@{self._api.app.host.noreply}"
        person = Person(name=account.name or account.login, email=address)
        return ActorPermission(id=user, login=account.login, kind=account.type, permission=permission, person=person)

    async def application(self, slug: str) -> int | None:
        """The id of another App; None if it is private or gone."""
        try:
            return (await self._api.read(api_models.AppResponse, GET_OTHER_APP, slug)).id
        except NotFoundOnGitHub:
            return None

    async def issue(self, number: int) -> GitHubIssue | None:
        found = await self._api.find(api_models.IssueResponse, GET_ISSUE, number)
        return _issue(found) if found else None

    async def labelled(self, label: str) -> tuple[GitHubIssue, ...]:
        """Open issues and pull requests with this label, least recently changed first."""
        return await self._open_issues({"labels": label})

    async def changed_since(self, since: datetime) -> tuple[GitHubIssue, ...]:
        """Open issues and pull requests that changed at this time or later, least recently changed first."""
        return await self._open_issues({"since": since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")})

    async def _open_issues(self, chosen: Mapping[str, str]) -> tuple[GitHubIssue, ...]:
        params = {**chosen, "state": "open", "sort": "updated", "direction": "asc"}
        return tuple(
            _issue(item) for item in await self._api.pages(api_models.IssueResponse, LIST_ISSUES, params=params)
        )

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
        found = await self._api.read(
            api_models.SearchResponse, SEARCH_ISSUES, params={"q": text, "per_page": 100, **order_params}
        )
        return tuple(_issue(item) for item in found.items)

    async def branches(self, prefix: str) -> tuple[str, ...]:
        """Branches whose names start with a prefix."""
        found = await self._api.read(list[api_models.ReferenceResponse], LIST_MATCHING_REFS, f"heads/{prefix}")
        return tuple(item.ref.removeprefix("refs/heads/") for item in found)

    async def comments(self, number: int, before: datetime) -> tuple[IssueComment, ...]:
        """Comments that existed unchanged before that moment."""
        found = await self._api.pages(api_models.CommentResponse, LIST_ISSUE_COMMENTS, number)
        return tuple(_comment(item) for item in found if max(item.created_at, item.updated_at) < before)

    async def pull_request(self, number: int) -> PullRequest | None:
        found = await self._api.find(api_models.PullRequestResponse, GET_PULL, number)
        return pull_request_facts(found) if found else None

    async def pull_request_of(self, branch: str) -> PullRequest | None:
        """The open pull request of a branch of this repository, else the newest closed one."""
        params = {"head": f"{self._api.repository.owner}:{branch}", "state": "all"}
        found = await self._api.pages(api_models.PullRequestResponse, LIST_PULLS, params=params)
        same = [item for item in found if item.head.ref == branch and self._is_ours(item)]
        same.sort(key=lambda item: (item.state == "open", item.number))
        return pull_request_facts(same[-1]) if same else None

    async def reviews(self, number: int, before: datetime | None = None) -> tuple[PullRequestReview, ...]:
        """Reviews submitted before that moment, or all."""
        found = await self._api.pages(api_models.ReviewResponse, LIST_REVIEWS, number)
        submitted = (facts for item in found if (facts := review_facts(item)) is not None)
        return tuple(facts for facts in submitted if before is None or facts.submitted_at < before)

    async def changed_files(self, number: int) -> tuple[ChangedFile, ...]:
        found = await self._api.pages(api_models.FileResponse, LIST_PULL_FILES, number)
        return tuple(
            ChangedFile(
                path=item.filename,
                status=item.status,
                additions=item.additions,
                deletions=item.deletions,
                diff=item.patch or "",
            )
            for item in found
        )

    async def file(self, path: str, ref: str = "") -> bytes | None:
        """A file's bytes on the default branch or at `ref`; None if there is no such file."""
        return await self._api.content(GET_CONTENT, path, params={"ref": ref} if ref else None)

    async def files_in(self, directory: str) -> tuple[str, ...]:
        """The paths of a directory's files on the default branch; none if there is no such directory."""
        found = await self._api.find(list[api_models.DirectoryEntryResponse], GET_CONTENT, directory)
        return tuple(item.path for item in found or () if item.type == "file")

    async def head(self, branch: str) -> str | None:
        """The id of a branch's newest commit; None if there is no such branch."""
        found = await self._api.find(api_models.ReferenceResponse, GET_REF, f"heads/{branch}")
        return found.object.sha if found else None

    async def author_address(self, commit: str) -> str:
        """The author's email address in a commit."""
        found = await self._api.read(api_models.CommitResponse, GET_COMMIT, commit)
        return (found.commit.author.email if found.commit.author else None) or ""

    def _is_ours(self, item: api_models.PullRequestResponse) -> bool:
        return item.head.repo is not None and item.head.repo.id == self._api.repository.id


def pull_request_facts(found: api_models.PullRequestResponse) -> PullRequest:
    return PullRequest(
        number=found.number,
        url=found.html_url,
        title=found.title,
        body=found.body or "",
        author=(found.user or GHOST).id,
        author_name=(found.user or GHOST).login,
        open=found.state == "open",
        merged=found.merged_at is not None,
        draft=found.draft,
        head_branch=found.head.ref,
        head=found.head.sha,
        head_repository=found.head.repo.id if found.head.repo else None,
        base_branch=found.base.ref,
        base=found.base.sha,
        mergeable=found.mergeable,
        updated_at=found.updated_at,
    )


def _issue(found: api_models.IssueResponse) -> GitHubIssue:
    return GitHubIssue(
        number=found.number,
        title=found.title,
        body=found.body or "",
        author=(found.user or GHOST).id,
        open=found.state == "open",
        locked=found.locked,
        labels=tuple(label if isinstance(label, str) else label.name for label in found.labels),
        assignees=tuple(account.id for account in found.assignees or ()),
        pull_request=found.pull_request is not None,
        updated_at=found.updated_at,
    )


def _comment(found: api_models.CommentResponse) -> IssueComment:
    account = found.user or GHOST
    return IssueComment(
        id=found.id,
        author=account.id,
        author_name=account.login,
        bot=account.type == "Bot",
        body=found.body or "",
        created_at=found.created_at,
        url=found.html_url,
        kind=account.type,
    )


MAX_PAGES = 5
"""Pages of a hundred open pull requests."""


class PullRequestsApi:
    """The pull requests of one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def open(self, *, base: str = "") -> tuple[PullRequest, ...]:
        """The open ones, or those against one base; newest change first, and only the newest if there are very many."""
        params = {"state": "open", "sort": "updated", "direction": "desc", **({"base": base} if base else {})}
        found = await self._api.pages(api_models.PullRequestResponse, LIST_PULLS, params=params, most=MAX_PAGES)
        return tuple(pull_request_facts(item) for item in found)

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
            LinkedPullRequest(number=node.number, author=(node.author.database_id or 0) if node.author else 0)
            for node in answer.pull_requests or ()
            if node is not None and node.state == "OPEN" and node.repository == answer.repository
        )

    async def commits(self, number: int) -> tuple[PullRequestCommit, ...]:
        """The commits of a pull request, oldest first; GitHub lists at most 250."""
        found = await self._api.pages(api_models.CommitResponse, LIST_PULL_COMMITS, number)
        return tuple(
            PullRequestCommit(
                id=item.sha,
                author=(item.commit.author.name if item.commit.author else None) or "",
                message=item.commit.message,
            )
            for item in found
        )

    async def merge_base(self, base: str, head: str) -> str:
        """The merge base of two commits. Raises NeedsHumanAction or NoAccess if there is none."""
        found = await self._api.read(api_models.ComparisonResponse, COMPARE_COMMITS, f"{base}...{head}")
        return found.merge_base_commit.sha
