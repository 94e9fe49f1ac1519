"""Builds the events that webhooks would have delivered from GitHub's current state, with the original actors."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from app.github.models import (
    Account,
    CheckResult,
    GitHubIssue,
    InlineComment,
    IssueComment,
    IssueEvent,
    PullRequest,
    PullRequestReview,
    Repository,
)
from app.triggers.commands import parse
from app.triggers.events import (
    ChecksFailed,
    DiffThread,
    EventSubject,
    InstallationChanged,
    IssueChanged,
    IssueCommented,
    LabelAdded,
    LabelRemoved,
    Pushed,
    ReviewCommented,
    ReviewSubmitted,
    SignedText,
)
from app.triggers.notifications import WORK_LABELS
from app.triggers.rules import CHANGES_REQUESTED

GHOST = Account(id=0, login="ghost")


class EventsFromApi:
    """Builds the events of one repository."""

    def __init__(self, installation: int, repository: Repository) -> None:
        self._installation = installation
        self._repository = repository

    def labelled(self, issue: GitHubIssue, put_on: IssueEvent) -> LabelAdded:
        return LabelAdded(**self._by(put_on.actor), subject=subject_of(issue), label=put_on.label)

    def commented(self, comment: IssueComment, issue: GitHubIssue) -> IssueCommented:
        return IssueCommented(**self._comment_fields(comment), subject=subject_of(issue))

    def review_commented(self, comment: InlineComment, issue: GitHubIssue) -> ReviewCommented:
        thread = DiffThread(
            comment=comment.root,
            path=comment.path,
            start=comment.start,
            end=comment.end,
            side=comment.side,
            hunk=comment.hunk,
        )
        return ReviewCommented(**self._comment_fields(comment), subject=subject_of(issue), thread=thread)

    def reviewed(self, review: PullRequestReview, issue: GitHubIssue) -> ReviewSubmitted:
        who = Account(id=review.author, login=review.author_name, kind=review.kind)
        words: dict[str, Any] = {"id": review.id, "words": SignedText.of(review.body), "at": review.submitted_at}
        return ReviewSubmitted(**self._by(who), **words, subject=subject_of(issue), verdict=review.state)

    def checks_failed(self, pull: PullRequest, failed: CheckResult) -> ChecksFailed:
        """Failing checks of a pull request. They have no actor of their own; what counts is whose checks they are."""
        return ChecksFailed(
            **self._by(GHOST),
            source="check_suite",
            id=failed.id,
            name=failed.name,
            conclusion=failed.conclusion,
            head_ref=pull.head_branch,
            head_sha=pull.head,
            pull_requests=(pull.number,),
            app=failed.app,
        )

    def pushed(self, branch: str) -> Pushed:
        """A branch as if it had just moved: pull requests against it may conflict."""
        return Pushed(**self._by(GHOST), branch=branch, before="", after="")

    def job_ending_events(
        self, issue: GitHubIssue, issue_events: Iterable[IssueEvent], since: datetime
    ) -> Iterator[IssueChanged | LabelRemoved]:
        """Events that end a job: the issue was closed, or our label was removed."""
        for each in issue_events:
            who = self._by(each.actor)
            if each.at < since:
                continue
            if each.event == "closed":
                yield IssueChanged(**who, change="closed", subject=subject_of(issue))
            elif each.event == "unlabeled" and each.label.casefold() in WORK_LABELS:
                yield LabelRemoved(**who, subject=subject_of(issue), label=each.label)

    def deleted(self, number: int, *, is_pull_request: bool) -> IssueChanged:
        subject = EventSubject(
            number=number, is_pull_request=is_pull_request, title="", body=SignedText.of(""), author=None, labels=()
        )
        return IssueChanged(**self._by(GHOST), change="deleted", subject=subject)

    def _by(self, actor: Account) -> dict[str, Any]:
        return {"installation": self._installation, "repository": self._repository, "actor": actor}

    def _comment_fields(self, comment: IssueComment) -> dict[str, Any]:
        who = Account(id=comment.author, login=comment.author_name, kind=comment.kind)
        fields = {"id": comment.id, "words": SignedText.of(comment.body), "at": comment.created_at, "app": comment.app}
        return {**self._by(who), **fields}


def access_lost(installation: int, repositories: tuple[int, ...] = ()) -> InstallationChanged:
    """A lost or suspended installation, or repositories that were removed from it."""
    change: Literal["removed", "deleted"] = "removed" if repositories else "deleted"
    return InstallationChanged(installation=installation, actor=GHOST, change=change, repositories=repositories)


def is_request(text: str, author: int, bot_id: int) -> bool:
    """True if a text is addressed to the bot by an account that still exists."""
    return author not in {0, bot_id} and parse(text) is not None


def is_review_of_bot(review: PullRequestReview, pull: PullRequest, bot_id: int) -> bool:
    """True if a review is addressed to the bot, or requests changes to its pull request."""
    wants_changes = review.state == CHANGES_REQUESTED and pull.author == bot_id
    return is_request(review.body, review.author, bot_id) or (wants_changes and review.author not in {0, bot_id})


def subject_of(issue: GitHubIssue) -> EventSubject:
    return EventSubject(
        number=issue.number,
        is_pull_request=issue.pull_request,
        title=issue.title,
        body=SignedText.of(issue.body),
        author=issue.author or None,
        labels=issue.labels,
    )
