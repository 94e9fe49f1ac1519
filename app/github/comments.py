"""Reads comments, reviews and events of a repository, by id or since a moment."""

from datetime import datetime
from typing import Any

from app.github import api_models
from app.github.calls import (
    COMMENT_EDIT,
    GET_COMMENT,
    GET_PULL_COMMENT,
    GET_REVIEW,
    LIST_ALL_COMMENTS,
    LIST_ALL_PULL_COMMENTS,
    LIST_ISSUE_EVENTS,
)
from app.github.graphql import CommentEditAnswer
from app.github.models import Account, CommentEdit, InlineComment, IssueComment, IssueEvent, PullRequestReview
from app.github.repository_api import RepositoryApi

GHOST = api_models.AccountResponse()
_ASCENDING = {"sort": "updated", "direction": "asc"}


class CommentsApi:
    """Comments, reviews and events of one repository, on any issue."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def comment(self, number: int) -> IssueComment | None:
        """A comment on an issue or pull request; None if it was deleted."""
        found = await self._api.find(api_models.CommentResponse, GET_COMMENT, number)
        return comment_facts(found) if found else None

    async def inline(self, number: int) -> InlineComment | None:
        """A comment on lines of a pull request."""
        found = await self._api.find(api_models.ReviewCommentResponse, GET_PULL_COMMENT, number)
        return inline_facts(found) if found else None

    async def review(self, pull: int, number: int) -> PullRequestReview | None:
        found = await self._api.find(api_models.ReviewResponse, GET_REVIEW, pull, number)
        return review_facts(found) if found else None

    async def comments_since(self, moment: datetime) -> tuple[IssueComment, ...]:
        """Comments of the whole repository that were written or edited since, oldest change first."""
        params = {"since": _when(moment), **_ASCENDING}
        found = await self._api.pages(api_models.CommentResponse, LIST_ALL_COMMENTS, params=params)
        return tuple(comment_facts(item) for item in found)

    async def inline_since(self, moment: datetime) -> tuple[InlineComment, ...]:
        params = {"since": _when(moment), **_ASCENDING}
        found = await self._api.pages(api_models.ReviewCommentResponse, LIST_ALL_PULL_COMMENTS, params=params)
        return tuple(inline_facts(item) for item in found)

    async def events(self, number: int) -> tuple[IssueEvent, ...]:
        """The events of one issue or pull request, in order."""
        found = await self._api.pages(api_models.IssueEventResponse, LIST_ISSUE_EVENTS, number)
        return tuple(
            IssueEvent(
                event=item.event,
                actor=_account(item.assigner or item.actor),
                at=item.created_at,
                label=item.label.name if item.label else "",
                assignee=item.assignee.id if item.assignee else 0,
            )
            for item in found
        )

    async def edit(self, comment: int) -> CommentEdit | None:
        """A comment's current text and last editor; None if it was deleted."""
        found = await self._api.find(api_models.CommentResponse, GET_COMMENT, comment)
        if found is None:
            return None
        answer = await self._api.graphql(CommentEditAnswer, COMMENT_EDIT, {"id": found.node_id})
        node = answer.node
        if node is None:
            return None
        editor = node.editor
        who = Account(id=editor.database_id or 0, login=editor.login, kind=editor.typename) if editor else None
        return CommentEdit(body=node.body, editor=who, edited_at=node.last_edited_at)


def comment_facts(found: api_models.CommentResponse) -> IssueComment:
    return IssueComment(**_comment_fields(found, found.issue_url))


def inline_facts(found: api_models.ReviewCommentResponse) -> InlineComment:
    end = found.line or found.original_line
    return InlineComment(
        **_comment_fields(found, found.pull_request_url),
        root=found.in_reply_to_id or found.id,
        path=found.path,
        start=found.start_line or end,
        end=end,
        side=found.side or "RIGHT",
        hunk=found.diff_hunk,
        review=found.pull_request_review_id,
    )


def review_facts(found: api_models.ReviewResponse) -> PullRequestReview | None:
    """None for a review that has not been submitted."""
    account = found.user or GHOST
    if found.submitted_at is None:
        return None
    return PullRequestReview(
        id=found.id,
        author=account.id,
        author_name=account.login,
        state=found.state.lower(),
        body=found.body or "",
        commit=found.commit_id or "",
        submitted_at=found.submitted_at,
        kind=account.type,
    )


def _comment_fields(found: api_models.CommentResponse, subject: str) -> dict[str, Any]:
    account = found.user or GHOST
    return {
        "id": found.id,
        "author": account.id,
        "author_name": account.login,
        "bot": account.type == "Bot",
        "kind": account.type,
        "body": found.body or "",
        "created_at": found.created_at,
        "updated_at": found.updated_at,
        "url": found.html_url,
        "number": _last_number(subject),
        "app": found.performed_via_github_app.id if found.performed_via_github_app else None,
        "node": found.node_id,
    }


def _last_number(address: str) -> int:
    """The number in an API address such as `…/issues/7`, else 0."""
    last = address.rstrip("/").rpartition("/")[2]
    return int(last) if last.isascii() and last.isdigit() else 0


def _account(found: api_models.AccountResponse | None) -> Account:
    account = found or GHOST
    return Account(id=account.id, login=account.login, kind=account.type)


def _when(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
