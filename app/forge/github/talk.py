"""What was said and what happened in a repository: one comment by its number, or everything since a moment."""

from datetime import datetime
from typing import Any

from app.forge.facts import Account, CommentFacts, EditFacts, HappenedFacts, InlineFacts, ReviewFacts
from app.forge.github import wire
from app.forge.github.calls import (
    COMMENT_EDIT,
    GET_COMMENT,
    GET_PULL_COMMENT,
    GET_REVIEW,
    LIST_ALL_COMMENTS,
    LIST_ALL_PULL_COMMENTS,
    LIST_ISSUE_EVENTS,
)
from app.forge.github.documents import CommentEditAnswer
from app.forge.github.door import Door

GHOST = wire.Account()
_ASCENDING = {"sort": "updated", "direction": "asc"}


class Talk:
    """The comments, reviews and events of one repository, whichever issue they belong to."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def comment(self, number: int) -> CommentFacts | None:
        """A comment on an issue or pull request; None where it was deleted."""
        found = await self._door.find(wire.Comment, GET_COMMENT, number)
        return comment_facts(found) if found else None

    async def inline(self, number: int) -> InlineFacts | None:
        """A comment on lines of a pull request."""
        found = await self._door.find(wire.ReviewComment, GET_PULL_COMMENT, number)
        return inline_facts(found) if found else None

    async def review(self, pull: int, number: int) -> ReviewFacts | None:
        found = await self._door.find(wire.Review, GET_REVIEW, pull, number)
        return review_facts(found) if found else None

    async def comments_since(self, moment: datetime) -> tuple[CommentFacts, ...]:
        """Comments of the whole repository that were written or edited since, the oldest change first."""
        params = {"since": _when(moment), **_ASCENDING}
        found = await self._door.pages(wire.Comment, LIST_ALL_COMMENTS, params=params)
        return tuple(comment_facts(item) for item in found)

    async def inline_since(self, moment: datetime) -> tuple[InlineFacts, ...]:
        params = {"since": _when(moment), **_ASCENDING}
        found = await self._door.pages(wire.ReviewComment, LIST_ALL_PULL_COMMENTS, params=params)
        return tuple(inline_facts(item) for item in found)

    async def happened(self, number: int) -> tuple[HappenedFacts, ...]:
        """What happened to one issue or pull request, in order."""
        found = await self._door.pages(wire.IssueEvent, LIST_ISSUE_EVENTS, number)
        return tuple(
            HappenedFacts(
                event=item.event,
                actor=_account(item.actor),
                at=item.created_at,
                label=item.label.name if item.label else "",
            )
            for item in found
        )

    async def edit(self, comment: int) -> EditFacts | None:
        """How a comment stands and who edited it last; None where it is gone."""
        found = await self._door.find(wire.Comment, GET_COMMENT, comment)
        if found is None:
            return None
        answer = await self._door.graphql(CommentEditAnswer, COMMENT_EDIT, {"id": found.node_id})
        node = answer.node
        if node is None:
            return None
        editor = node.editor
        who = Account(id=editor.database_id or 0, login=editor.login, kind=editor.typename) if editor else None
        return EditFacts(body=node.body, editor=who, edited_at=node.last_edited_at)


def comment_facts(found: wire.Comment) -> CommentFacts:
    return CommentFacts(**_said(found, found.issue_url))


def inline_facts(found: wire.ReviewComment) -> InlineFacts:
    end = found.line or found.original_line
    return InlineFacts(
        **_said(found, found.pull_request_url),
        root=found.in_reply_to_id or found.id,
        path=found.path,
        start=found.start_line or end,
        end=end,
        side=found.side or "RIGHT",
        hunk=found.diff_hunk,
        review=found.pull_request_review_id,
    )


def review_facts(found: wire.Review) -> ReviewFacts | None:
    """None for one that was not submitted yet."""
    account = found.user or GHOST
    if found.submitted_at is None:
        return None
    return ReviewFacts(
        id=found.id,
        author=account.id,
        author_name=account.login,
        state=found.state.lower(),
        body=found.body or "",
        commit=found.commit_id or "",
        submitted_at=found.submitted_at,
        kind=account.type,
    )


def _said(found: wire.Comment, subject: str) -> dict[str, Any]:
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
    """Of an API address such as `…/issues/7`; 0 where it is none."""
    last = address.rstrip("/").rpartition("/")[2]
    return int(last) if last.isascii() and last.isdigit() else 0


def _account(found: wire.Account | None) -> Account:
    account = found or GHOST
    return Account(id=account.id, login=account.login, kind=account.type)


def _when(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
