"""Comments, reviews and review threads of a repository, with the hidden markers by which the bot finds its own."""

import re
from collections.abc import Collection
from datetime import datetime

from app.github.calls import (
    COMMENT_EDIT,
    GET_COMMENT,
    GET_PULL_COMMENT,
    GET_REVIEW,
    LIST_ALL_COMMENTS,
    LIST_ALL_PULL_COMMENTS,
    LIST_ISSUE_EVENTS,
    LIST_PULL_COMMENTS,
    REPLY_TO_PULL_COMMENT,
    RESOLVE_THREAD,
    REVIEW_THREADS,
    THREAD_STATE,
)
from app.github.errors import TemporaryFailure
from app.github.graphql import (
    CommentEditAnswer,
    ReviewThread,
    ReviewThreadComment,
    ThreadsAnswer,
    ThreadStateAnswer,
)
from app.github.models import (
    NOT_SUBMITTED,
    Account,
    CommentEdit,
    InlineComment,
    IssueComment,
    IssueEvent,
    PullRequestReview,
)
from app.github.repository_api import RepositoryApi

_ASCENDING = {"sort": "updated", "direction": "asc"}


class CommentsApi:
    """Comments, reviews and events of one repository, on any issue."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def comment(self, number: int) -> IssueComment | None:
        """A comment on an issue or pull request; None if it was deleted."""
        return await self._api.find(IssueComment, GET_COMMENT, number)

    async def inline(self, number: int) -> InlineComment | None:
        """A comment on lines of a pull request."""
        return await self._api.find(InlineComment, GET_PULL_COMMENT, number)

    async def review(self, pull: int, number: int) -> PullRequestReview | None:
        """A submitted review."""
        found = await self._api.find(PullRequestReview, GET_REVIEW, pull, number)
        return found if found and found.submitted_at < NOT_SUBMITTED else None

    async def comments_since(self, moment: datetime) -> tuple[IssueComment, ...]:
        """Comments of the whole repository that were written or edited since, oldest change first."""
        params = {"since": _when(moment), **_ASCENDING}
        return tuple(await self._api.pages(IssueComment, LIST_ALL_COMMENTS, params=params))

    async def inline_since(self, moment: datetime) -> tuple[InlineComment, ...]:
        params = {"since": _when(moment), **_ASCENDING}
        return tuple(await self._api.pages(InlineComment, LIST_ALL_PULL_COMMENTS, params=params))

    async def events(self, number: int) -> tuple[IssueEvent, ...]:
        """The events of one issue or pull request, in order."""
        return tuple(await self._api.pages(IssueEvent, LIST_ISSUE_EVENTS, number))

    async def edit(self, comment: int) -> CommentEdit | None:
        """A comment's current text and last editor; None if it was deleted."""
        found = await self._api.find(IssueComment, GET_COMMENT, comment)
        if found is None:
            return None
        answer = await self._api.graphql(CommentEditAnswer, COMMENT_EDIT, {"id": found.node})
        node = answer.node
        if node is None:
            return None
        editor = node.editor
        who = Account(id=editor.database_id or 0, login=editor.login, kind=editor.typename) if editor else None
        return CommentEdit(body=node.body, editor=who, edited_at=node.last_edited_at)


def _when(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


_MARK = re.compile(r"<!-- agent-fix:job:[A-Za-z0-9._/-]+ -->")
MARKED = re.compile(r"<!-- agent-fix:job:(?P<key>[A-Za-z0-9._/-]+) -->\s*\Z")
"""The marker at the end of a text."""
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,120}")


def marker(key: str) -> str:
    if not _KEY.fullmatch(key) or "--" in key:
        raise ValueError(f"{key!r} cannot be the key of a marker")
    return f"<!-- agent-fix:job:{key} -->"


def with_marker(body: str, key: str) -> str:
    """The body with this marker at the end and without any other marker."""
    return f"{_MARK.sub('', body).rstrip()}\n\n{marker(key)}"


def has_text(body: str, key: str) -> bool:
    """True if the text ends with the key's marker."""
    return body.rstrip().endswith(marker(key))


MAX_PAGES = 20


class ReviewThreadsApi:
    """The review threads of one repository's pull requests."""

    def __init__(self, api: RepositoryApi, login: str) -> None:
        self._api = api
        self._login = login

    async def of(
        self, number: int, before: datetime, *, including: Collection[int] = (), review: int = 0
    ) -> tuple[ReviewThread, ...]:
        """Threads from before that moment, each with the comments that existed unchanged then.

        A thread with one of the comments in `asking` is included even if it has no other. The comments of `review`
        count as written at that moment.
        """
        repository = self._api.repository
        variables = {"owner": repository.owner, "name": repository.name, "number": number}
        nodes: list[ReviewThread] = []
        after: str | None = None
        for _ in range(MAX_PAGES):
            query = {**variables, "after": after}
            answer = await self._api.graphql(ThreadsAnswer, REVIEW_THREADS, query)
            nodes += answer.threads
            after = answer.end_cursor
            if not answer.has_next_page:
                break
        included = [bool({item.id for item in node.comments} & set(including)) for node in nodes]
        threads = zip((_as_it_stood(node, before, review) for node in nodes), included, strict=True)
        return tuple(facts for facts, is_included in threads if facts.comments or is_included)

    async def ensure_reply(self, number: int, comment: int, key: str, body: str) -> str:
        """Reply to a thread once; `comment` is the id of any of its comments. Returns the reply's address."""
        if there := await self._reply(number, key):
            return there
        text = {"body": with_marker(body, key)}
        try:
            made = await self._api.change(IssueComment, REPLY_TO_PULL_COMMENT, number, comment, body=text)
        except TemporaryFailure:
            if there := await self._reply(number, key):
                return there
            raise
        return made.url

    async def ensure_resolved(self, thread: str) -> None:
        """Resolve a thread; does nothing if it is gone."""
        answer = await self._api.graphql(ThreadStateAnswer, THREAD_STATE, {"id": thread})
        if answer.is_resolved is False:
            await self._api.graphql(dict, RESOLVE_THREAD, {"id": thread})

    async def _reply(self, number: int, key: str) -> str:
        found = await self._api.pages(IssueComment, LIST_PULL_COMMENTS, number)
        ours = (item for item in found if item.author_name == self._login)
        return next((item.url for item in ours if has_text(item.body, key)), "")


def _as_it_stood(thread: ReviewThread, before: datetime, review: int) -> ReviewThread:
    first = {"root": thread.comments[0].id, "diff": thread.comments[0].diff_hunk} if thread.comments else {}
    stood = tuple(item for item in thread.comments if _stood(item, before, review))
    return thread.model_copy(update={**first, "comments": stood})


def _stood(item: ReviewThreadComment, before: datetime, review: int) -> bool:
    part_of = bool(review) and item.review == review
    existed = item.created_at < before or part_of
    return existed and (item.last_edited_at is None or item.last_edited_at < before)
