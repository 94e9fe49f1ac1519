"""Reads what a job needs to know from GitHub: permissions, issues and their images, reviews, files, checks."""

import asyncio
import logging
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import httpx

from app.core.images import MAX_IMAGE_BYTES, MAX_IMAGES, ImageCollection, ImageRejected, too_large
from app.core.job import JOB_ID
from app.core.task import Person
from app.core.text import html_images
from app.github import calls, models
from app.github.base import (
    CHECK,
    NeedsHumanAction,
    NoAccess,
    TemporaryFailure,
    UnexpectedAnswer,
    has_marker,
    with_marker,
)
from app.github.calls import BODY_HTML
from app.github.connection import TIMEOUT, GitHubHost, RepositoryId
from app.github.models import BodyHtmlAnswer
from app.github.refusals import NotFoundOnGitHub
from app.github.repository_api import RepositoryApi

logger = logging.getLogger(__name__)

CLOCKS_DIFFER = timedelta(hours=1)
OPEN_PULL_REQUEST_PAGES = 5
TIMELINE_PAGES = 3
"""Pages of a hundred open pull requests."""
THREAD_PAGES = 20
FAILED = frozenset({"failure", "timed_out", "action_required", "startup_failure", "error", "cancelled"})
"""GitHub's words for a check that failed."""
LOG_END = 20_000
"""Bytes to keep from the end of a log, where the failure is."""
MAX_LOG = 64 * 1024 * 1024

_ASCENDING = {"sort": "updated", "direction": "asc"}


async def ensure_issue(api: RepositoryApi, title: str, body: str, *, key: str, user: int, since: datetime) -> int:
    """The number of our issue with this key: one that was opened since then, or else a new one."""
    params = {"state": "all", "since": _when(since - CLOCKS_DIFFER)}
    found = await api.pages(models.GitHubIssue, calls.LIST_ISSUES, params=params)
    there = next((item for item in found if item.author == user and has_marker(item.body, key)), None)
    if there is None:
        text = {"title": title, "body": with_marker(body, key)}
        there = await api.change(models.GitHubIssue, calls.CREATE_ISSUE, body=text)
    return there.number


class RepositoryReader:
    """Reads one repository."""

    def __init__(self, api: RepositoryApi) -> None:
        self.api = api

    async def repository(self) -> models.Repository:
        return await self.api.read(models.Repository, calls.GET_REPOSITORY)

    async def repository_by_id(self) -> models.Repository:
        """The repository by its id, whatever its current name."""
        return await self.api.read(models.Repository, calls.GET_REPOSITORY_BY_ID, self.api.repository.id)

    async def by_current_name(self) -> "tuple[RepositoryReader, models.Repository]":
        """A reader that uses the repository's current name, and the repository. Raises NoAccess.

        If our id is 0, it is whatever repository has the name. Otherwise the token is created for this id and
        installation, which proves that the two belong together.
        """
        named = self.api.repository
        try:
            found = await self.repository()
        except NoAccess:  # renamed or transferred
            found = await self.repository_by_id()
        if named.id and found.id != named.id:  # another repository has the name by now
            found = await self.repository_by_id()
        current = RepositoryId(found.id, found.owner, found.name)
        if current == named:
            return self, found
        return RepositoryReader(RepositoryApi(self.api.app, self.api.installation, current)), found

    async def installation(self) -> int | None:
        """The repository's installation according to GitHub; None if there is none or it is suspended."""
        repository = self.api.repository
        return await self.api.auth.serves(repository.owner, repository.name)

    async def actor(self, user: int) -> models.ActorPermission:
        """What an account may do here, by id: a login can change hands between two requests."""
        account = await self.api.read(models.Account, calls.GET_USER_BY_ID, user)
        found = await self.api.find(models.ActorPermission, calls.GET_PERMISSION, account.login)
        same = found is not None and found.id == user == account.id
        permission = found.permission if found and same and found.permission in {"admin", "write", "read"} else "none"
        address = f"{user}+{account.login}@{self.api.app.host.noreply}"
        person = Person(name=account.name or account.login, email=address)
        return models.ActorPermission(
            id=user, login=account.login, kind=account.kind, permission=permission, person=person
        )

    async def may_write(self, user: int) -> bool:
        """False also for an account that is gone, or if GitHub refuses the answer."""
        try:
            return (await self.actor(user)).may_write
        except NoAccess:
            return False

    async def application(self, slug: str) -> int | None:
        """The id of another App; None if it is private or gone."""
        try:
            return (await self.api.read(models.AppResponse, calls.GET_OTHER_APP, slug)).id
        except NotFoundOnGitHub:
            return None

    async def issue(self, number: int) -> models.GitHubIssue | None:
        return await self.api.find(models.GitHubIssue, calls.GET_ISSUE, number)

    async def labelled(self, label: str) -> tuple[models.GitHubIssue, ...]:
        """Open issues and pull requests with this label, least recently changed first."""
        return await self._open_issues({"labels": label})

    async def changed_since(self, since: datetime) -> tuple[models.GitHubIssue, ...]:
        """Open issues and pull requests that changed at this time or later, least recently changed first."""
        return await self._open_issues({"since": _when(since)})

    async def _open_issues(self, chosen: Mapping[str, str]) -> tuple[models.GitHubIssue, ...]:
        params = {**chosen, "state": "open", **_ASCENDING}
        return tuple(await self.api.pages(models.GitHubIssue, calls.LIST_ISSUES, params=params))

    async def searched(self, query: str) -> tuple[models.GitHubIssue, ...]:
        """Up to a hundred open issues that match GitHub's search, in its order.

        `sort:reactions-+1-desc` and the like are parsed here, because the API takes them as parameters.
        """
        words = query.split()
        sort = next((word for word in words if word.startswith("sort:")), "").removeprefix("sort:")
        order = "asc" if sort.endswith("-asc") else "desc"
        order_params = {"sort": sort.removesuffix(f"-{order}"), "order": order} if sort else {}
        repository = self.api.repository
        terms = [word for word in words if not word.startswith(("sort:", "repo:", "org:", "user:"))]
        text = " ".join([*terms, f"repo:{repository.owner}/{repository.name}", "is:issue", "is:open"])
        query_params: dict[str, str | int] = {"q": text, "per_page": 100, **order_params}
        return tuple(await self.api.read(list[models.GitHubIssue], calls.SEARCH_ISSUES, params=query_params))

    async def branches(self, prefix: str) -> tuple[str, ...]:
        """Branches whose names start with a prefix."""
        found = await self.api.read(list[models.ReferenceResponse], calls.LIST_MATCHING_REFS, f"heads/{prefix}")
        return tuple(item.ref.removeprefix("refs/heads/") for item in found)

    async def comments(self, number: int, before: datetime) -> tuple[models.IssueComment, ...]:
        """Comments that existed unchanged before that moment."""
        found = await self.api.pages(models.IssueComment, calls.LIST_ISSUE_COMMENTS, number)
        return tuple(item for item in found if max(item.created_at, item.updated_at or item.created_at) < before)

    async def pull_request(self, number: int) -> models.PullRequest | None:
        return await self.api.find(models.PullRequest, calls.GET_PULL, number)

    async def pull_request_of(self, branch: str) -> models.PullRequest | None:
        """The open pull request of a branch of this repository, else the newest closed one."""
        params = {"head": f"{self.api.repository.owner}:{branch}", "state": "all"}
        found = await self.api.pages(models.PullRequest, calls.LIST_PULLS, params=params)
        ours = self.api.repository.id
        same = [item for item in found if (item.head_branch, item.head_repository) == (branch, ours)]
        return max(same, key=lambda item: (item.open, item.number), default=None)

    async def reviews(self, number: int, before: datetime | None = None) -> tuple[models.PullRequestReview, ...]:
        """Reviews submitted before that moment, or all."""
        found = await self.api.pages(models.PullRequestReview, calls.LIST_REVIEWS, number)
        return tuple(item for item in found if item.submitted_at < (before or models.NOT_SUBMITTED))

    async def changed_files(self, number: int) -> tuple[models.ChangedFile, ...]:
        return tuple(await self.api.pages(models.ChangedFile, calls.LIST_PULL_FILES, number))

    async def file(self, path: str) -> bytes | None:
        """A file's bytes on the default branch; None if there is no such file."""
        return await self.api.content(calls.GET_CONTENT, path)

    async def files_in(self, directory: str) -> tuple[str, ...]:
        """The paths of a directory's files on the default branch; none if there is no such directory."""
        found = await self.api.find(list[models.DirectoryEntryResponse], calls.GET_CONTENT, directory)
        return tuple(item.path for item in found or () if item.type == "file")

    async def head(self, branch: str) -> str | None:
        """The id of a branch's newest commit; None if there is no such branch."""
        found = await self.api.find(models.ReferenceResponse, calls.GET_REF, f"heads/{branch}")
        return found.commit if found else None

    async def author_address(self, commit: str) -> str:
        """The author's email address in a commit."""
        return (await self.api.read(models.PullRequestCommit, calls.GET_COMMIT, commit)).email

    async def comment(self, number: int) -> models.IssueComment | None:
        """A comment on an issue or pull request; None if it was deleted."""
        return await self.api.find(models.IssueComment, calls.GET_COMMENT, number)

    async def inline_comment(self, number: int) -> models.InlineComment | None:
        """A comment on lines of a pull request."""
        return await self.api.find(models.InlineComment, calls.GET_PULL_COMMENT, number)

    async def review(self, pull: int, number: int) -> models.PullRequestReview | None:
        """A submitted review."""
        found = await self.api.find(models.PullRequestReview, calls.GET_REVIEW, pull, number)
        return found if found and found.submitted_at < models.NOT_SUBMITTED else None

    async def comments_since(self, moment: datetime) -> tuple[models.IssueComment, ...]:
        """Comments of the whole repository that were written or edited since, oldest change first."""
        params = {"since": _when(moment), **_ASCENDING}
        return tuple(await self.api.pages(models.IssueComment, calls.LIST_ALL_COMMENTS, params=params))

    async def inline_comments_since(self, moment: datetime) -> tuple[models.InlineComment, ...]:
        params = {"since": _when(moment), **_ASCENDING}
        return tuple(await self.api.pages(models.InlineComment, calls.LIST_ALL_PULL_COMMENTS, params=params))

    async def issue_events(self, number: int) -> tuple[models.IssueEvent, ...]:
        """The events of one issue or pull request, in order."""
        return tuple(await self.api.pages(models.IssueEvent, calls.LIST_ISSUE_EVENTS, number))

    async def cross_references(self, number: int) -> tuple[models.CrossReference, ...]:
        """Where an issue is referred to, oldest first; none if GitHub does not tell."""
        try:
            found = await self.api.pages(models.CrossReference, calls.LIST_TIMELINE, number, most=TIMELINE_PAGES)
        except (NeedsHumanAction, NoAccess, UnexpectedAnswer) as error:
            logger.warning("references to #%d: %s", number, error.message)
            return ()
        return tuple(each for each in found if each.event == "cross-referenced")

    async def comment_edit(self, comment: int) -> models.CommentEdit | None:
        """A comment's current text and last editor; None if it was deleted."""
        found = await self.api.find(models.IssueComment, calls.GET_COMMENT, comment)
        return await self.last_edit(found.node) if found else None

    async def last_edit(self, node: str) -> models.CommentEdit | None:
        """The current text and last editor of a comment, a review, or the description of an issue or pull request."""
        answer = await self.api.graphql(models.CommentEditAnswer, calls.COMMENT_EDIT, {"id": node})
        return answer.node

    async def review_threads(
        self, number: int, before: datetime, *, including: Collection[int] = (), review: int = 0
    ) -> tuple[models.ReviewThread, ...]:
        """Threads from before that moment, each with the comments that existed unchanged then.

        A thread with one of the comments in `including` is kept even if it has no other. The comments of `review`
        count as written at that moment.
        """
        nodes: list[models.ReviewThread] = []
        after: str | None = None
        for _ in range(THREAD_PAGES):
            answer = await self.api.graphql(
                models.ThreadsAnswer, calls.REVIEW_THREADS, {**self.api.names, "number": number, "after": after}
            )
            nodes += answer.threads
            after = answer.end_cursor
            if not answer.has_next_page:
                break
        found = []
        for thread in nodes:
            comments = tuple(each for each in thread.comments if _existed(each, before, review))
            if comments or any(each.id in including for each in thread.comments):
                first = thread.comments[0]
                known = {"root": first.id, "diff": first.diff_hunk, "comments": comments}
                found.append(thread.model_copy(update=known))
        return tuple(found)

    async def open_pull_requests(self, *, base: str = "") -> tuple[models.PullRequest, ...]:
        """The open ones, or those against one base; newest change first, and only the newest if there are very many."""
        params = {"state": "open", "sort": "updated", "direction": "desc", **({"base": base} if base else {})}
        return tuple(
            await self.api.pages(models.PullRequest, calls.LIST_PULLS, params=params, most=OPEN_PULL_REQUEST_PAGES)
        )

    async def linked_pull_requests(self, issue: int) -> tuple[models.LinkedPullRequest, ...]:
        """Open pull requests of this repository that will close this issue when merged.

        Leaves out those that GitHub does not show us; an older Enterprise Server shows none.
        """
        variables = {**self.api.names, "number": issue}
        try:
            answer = await self.api.graphql(models.LinkedAnswer, calls.LINKED_PULL_REQUESTS, variables, partial=True)
        except (NeedsHumanAction, NoAccess, UnexpectedAnswer) as error:
            logger.warning("linked pull requests of #%d: %s", issue, error.message)
            return ()
        return tuple(
            node
            for node in answer.pull_requests or ()
            if node is not None and node.state == "OPEN" and node.repository == answer.repository
        )

    async def commits(self, number: int) -> tuple[models.PullRequestCommit, ...]:
        """The commits of a pull request, oldest first; GitHub lists at most 250."""
        return tuple(await self.api.pages(models.PullRequestCommit, calls.LIST_PULL_COMMITS, number))

    async def requires_check(self, branch: str, name: str) -> bool:
        """True if a ruleset requires this check before something is merged into the branch."""
        try:
            rules = await self.api.pages(models.BranchRule, calls.LIST_BRANCH_RULES, branch)
        except (NeedsHumanAction, NoAccess):  # such as a plan without rulesets
            return False
        required = [rule.parameters or {} for rule in rules if rule.type == "required_status_checks"]
        checks = [check for each in required for check in each.get("required_status_checks") or ()]
        return any(isinstance(check, dict) and check.get("context") == name for check in checks)

    async def merge_base(self, base: str, head: str) -> str:
        """The merge base of two commits. Raises NeedsHumanAction or NoAccess if there is none."""
        found = await self.api.read(models.ComparisonResponse, calls.COMPARE_COMMITS, f"{base}...{head}")
        return found.merge_base

    async def checks(self, commit: str, *, logs: int) -> tuple[models.CheckResult, ...]:
        """Every check run and commit status of a commit except our own, only the newest with each name.

        The first `logs` check runs that failed have their logs.
        """
        found: dict[tuple[str, str], models.CheckRunResponse] = {}
        for item in await self._other_check_runs(commit):
            found.setdefault((item.app_slug, item.name), item)
        failed = [item.id for item in found.values() if item.conclusion in FAILED][:logs]
        checks = [await self._check(item, source, log=item.id in failed) for (source, _), item in found.items()]
        return (*checks, *await self._statuses(commit))

    async def failed_checks(self, commit: str) -> tuple[models.CheckResult, ...]:
        """Failed checks and statuses except ours, without logs; empty while any check run is still running.

        Statuses are not awaited, because one may stay pending for good.
        """
        found = await self._other_check_runs(commit)
        if any(item.conclusion is None for item in found):
            return ()
        bad = [await self._check(item, "") for item in found if item.conclusion in FAILED]
        return (*bad, *(status for status in await self._statuses(commit) if status.conclusion in FAILED))

    async def _other_check_runs(self, commit: str) -> list[models.CheckRunResponse]:
        params = {"filter": "latest"}
        found = await self.api.pages(models.CheckRunResponse, calls.LIST_CHECK_RUNS, commit, params=params)
        return [item for item in found if not self._is_own_check(item)]

    def _is_own_check(self, item: models.CheckRunResponse) -> bool:
        """By our App's number. A workflow's token has none that we know: then by its name and its job's id."""
        if app := self.api.app.app_id:
            return item.app == app
        return item.name == CHECK and JOB_ID.fullmatch(item.external_id or "") is not None

    async def _statuses(self, commit: str) -> list[models.CheckResult]:
        return [
            models.CheckResult(
                name=status.context,
                source="status",
                conclusion=status.state,
                summary=status.description or "",
                url=status.target_url or "",
            )
            for status in await self.api.pages(models.StatusResponse, calls.GET_COMBINED_STATUS, commit)
        ]

    async def _check(self, item: models.CheckRunResponse, source: str, *, log: bool = False) -> models.CheckResult:
        summary = "\n".join(part for part in (item.title, item.summary, item.text) if part)
        return models.CheckResult(
            id=item.id,
            app=item.app,
            name=item.name,
            source=source,
            conclusion=item.conclusion or item.status,
            summary=summary,
            url=item.html_url or "",
            log=await self._log(item) if log else "",
        )

    async def _log(self, item: models.CheckRunResponse) -> str:
        """The end of a workflow job's log, which has the same id as the check; for other checks, their annotations."""
        if item.app_slug == "github-actions":
            with suppress(NoAccess):  # a log that has expired; the check itself still counts
                if address := await self.api.location(calls.GET_JOB_LOG, item.id):
                    return await self._download(address)
        try:
            notes = await self.api.pages(models.AnnotationResponse, calls.LIST_ANNOTATIONS, item.id)
        except NoAccess:
            return ""
        return "\n".join(f"{note.path}:{note.start_line}: {note.message or ''}" for note in notes)[-LOG_END:]

    async def _download(self, address: str) -> str:
        """The end of a log, read without our token, because logs are on another host."""
        tail, received = b"", 0
        try:
            async with (
                httpx.AsyncClient(transport=self.api.app.shared_transport, timeout=30.0) as client,
                client.stream("GET", address) as response,
            ):
                if not response.is_success:
                    return ""
                async for chunk in response.aiter_bytes():
                    tail, received = (tail + chunk)[-LOG_END:], received + len(chunk)
                    if received > MAX_LOG:
                        break
        except (httpx.HTTPError, httpx.InvalidURL):
            return ""
        return tail.decode("utf-8", "replace")


def _existed(item: models.ReviewThreadComment, before: datetime, review: int) -> bool:
    """True if it was written before that moment, or is part of this review, and was not edited since."""
    written = item.created_at < before or (bool(review) and item.review == review)
    return written and (item.last_edited_at is None or item.last_edited_at < before)


def _when(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


TOTAL_TIMEOUT: Final = 30.0
"""Seconds for one image."""
ELSEWHERE: Final = "only GitHub attachments are fetched"
TOO_MANY: Final = f"the limit is {MAX_IMAGES}"
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ITS_IMAGES: Final = ("private-user-images.githubusercontent.com", "user-images.githubusercontent.com")


class AttachmentFetcher:
    """Fetches images of one repository's issues."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def collect(self, number: int, addresses: Iterable[str]) -> ImageCollection:
        """The images at these addresses in the text of an issue or pull request; problems are noted in the result."""
        image_collection, wanted = ImageCollection(), dict[str, int]()
        for place, address in enumerate(addresses, 1):
            name = attachment(address, self._api.app.host)
            if not name:
                image_collection.leave_out(place, ELSEWHERE)
            elif len(wanted) >= MAX_IMAGES and name not in wanted:
                image_collection.leave_out(place, TOO_MANY)
            else:
                wanted.setdefault(name, place)
        signed = await self._signed(number) if wanted else {}
        for name, place in wanted.items():
            try:
                image_collection.add(place, await self._fetch(signed, name))
            except ImageRejected as why:
                image_collection.leave_out(place, str(why))
        return image_collection

    async def _signed(self, number: int) -> Mapping[str, str]:
        """The signed addresses on the rendered page, by attachment name; empty if GitHub does not return the page."""
        try:
            answer = await self._api.graphql(BodyHtmlAnswer, BODY_HTML, {**self._api.names, "number": number})
        except (NoAccess, NeedsHumanAction, TemporaryFailure):
            return {}
        found: dict[str, str] = {}
        for address in html_images(answer.page):
            if name := attachment(address, self._api.app.host):
                found.setdefault(name, address)
        return found

    async def _fetch(self, signed: Mapping[str, str], name: str) -> bytes:
        if name not in signed:
            raise ImageRejected("it is no longer on the page, or the page could not be read")
        client = httpx.AsyncClient(
            transport=self._api.app.shared_transport,
            timeout=TIMEOUT,
            follow_redirects=False,
            headers={"accept": "image/*", "accept-encoding": "identity", "user-agent": "agent-fix"},
        )
        try:
            async with asyncio.timeout(TOTAL_TIMEOUT), client, client.stream("GET", signed[name]) as response:
                return await _body(response)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError):
            raise ImageRejected("it could not be fetched") from None


async def _body(response: httpx.Response) -> bytes:
    """The raw body. Raises ImageRejected if it is too large or not a success."""
    if response.status_code != 200:
        raise ImageRejected(f"GitHub answered {response.status_code}")
    content = bytearray()
    async for piece in response.aiter_raw():
        content += piece
        if len(content) > MAX_IMAGE_BYTES:
            raise too_large()
    return bytes(content)


def attachment(address: str, host: GitHubHost) -> str:
    """The attachment's name if the address is one of this GitHub's own, else empty."""
    site = urlsplit(host.server_url)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return ""
    if parts.scheme != site.scheme or parts.username is not None or port != site.port:
        return ""
    if not _is_its_own(parts.hostname or "", host, site.hostname or ""):
        return ""
    found = _UUID.findall(parts.path)
    return str(found[-1]).lower() if found else ""


def _is_its_own(name: str, host: GitHubHost, site: str) -> bool:
    """True for hosts that may hold this GitHub's attachments.

    Enterprise Server uses its own host or `media` below it. A tenant of GHE.com has *.TENANT.ghe.com, and it is not
    documented which of them hold images; `pages` has what people publish themselves.
    """
    if host.is_enterprise_server:
        return name in {site, f"media.{site}"}
    below = site.endswith(".ghe.com") and name.endswith(f".{site}") and not name.endswith(f".pages.{site}")
    return below or name in {site, *_ITS_IMAGES}
