"""Inline review threads: reads them with their position, replies once, resolves them."""

from collections.abc import Collection
from datetime import datetime

from app.github import api_models
from app.github.calls import LIST_PULL_COMMENTS, REPLY_TO_PULL_COMMENT, RESOLVE_THREAD, REVIEW_THREADS, THREAD_STATE
from app.github.errors import TemporaryFailure
from app.github.graphql import ThreadCommentNode, ThreadNode, ThreadsAnswer, ThreadStateAnswer
from app.github.markers import has_text, with_marker
from app.github.models import ReviewThread, ReviewThreadComment
from app.github.repository_api import RepositoryApi

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
        nodes: list[ThreadNode] = []
        after: str | None = None
        for _ in range(MAX_PAGES):
            query = {**variables, "after": after}
            answer = await self._api.graphql(ThreadsAnswer, REVIEW_THREADS, query)
            nodes += answer.threads
            after = answer.end_cursor
            if not answer.has_next_page:
                break
        included = [bool({item.number for item in node.comments} & set(including)) for node in nodes]
        threads = zip((_facts(node, before, review) for node in nodes), included, strict=True)
        return tuple(facts for facts, is_included in threads if facts.comments or is_included)

    async def ensure_reply(self, number: int, comment: int, key: str, body: str) -> str:
        """Reply to a thread once; `comment` is the id of any of its comments. Returns the reply's address."""
        if there := await self._reply(number, key):
            return there
        text = {"body": with_marker(body, key)}
        try:
            made = await self._api.change(api_models.CommentResponse, REPLY_TO_PULL_COMMENT, number, comment, body=text)
        except TemporaryFailure:
            if there := await self._reply(number, key):
                return there
            raise
        return made.html_url

    async def ensure_resolved(self, thread: str) -> None:
        """Resolve a thread; does nothing if it is gone."""
        answer = await self._api.graphql(ThreadStateAnswer, THREAD_STATE, {"id": thread})
        if answer.is_resolved is False:
            await self._api.graphql(dict, RESOLVE_THREAD, {"id": thread})

    async def _reply(self, number: int, key: str) -> str:
        found = await self._api.pages(api_models.CommentResponse, LIST_PULL_COMMENTS, number)
        ours = (item for item in found if item.user is not None and item.user.login == self._login)
        return next((item.html_url for item in ours if has_text(item.body or "", key)), "")


def _facts(node: ThreadNode, before: datetime, review: int) -> ReviewThread:
    comments = [item for item in node.comments if _stood(item, before, review)]
    return ReviewThread(
        id=node.id,
        path=node.path,
        line=node.line,
        start_line=node.start_line,
        root=node.comments[0].number if node.comments else 0,
        resolved=node.is_resolved,
        outdated=node.is_outdated,
        diff=node.comments[0].diff_hunk if node.comments else "",
        comments=tuple(
            ReviewThreadComment(
                id=item.number,
                author_name=item.author,
                body=item.body,
                created_at=item.created_at,
                review=item.pull_request_review.number if item.pull_request_review else None,
            )
            for item in comments
        ),
    )


def _stood(item: ThreadCommentNode, before: datetime, review: int) -> bool:
    part_of = bool(review) and item.pull_request_review is not None and item.pull_request_review.number == review
    existed = item.created_at < before or part_of
    return existed and (item.last_edited_at is None or item.last_edited_at < before)
