"""From what GitHub says now to the events that its webhooks would have told: the same, with the actors that did it."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Literal

from app.commands import parse
from app.events import (
    Actor,
    ChecksFailed,
    Commented,
    InstallationChanged,
    IssueChanged,
    Labelled,
    Pushed,
    Repository,
    ReviewCommented,
    Reviewed,
    Subject,
    Thread,
    Unlabelled,
    Words,
)
from app.forge.facts import (
    Account,
    CheckFacts,
    CommentFacts,
    HappenedFacts,
    InlineFacts,
    IssueFacts,
    PullRequestFacts,
    RepositoryFacts,
    ReviewFacts,
)
from app.intake import ASKS_FOR_CHANGES
from app.signals import WORK_LABELS

NOBODY = Actor(id=0, login="ghost", type="User")


class Hindsight:
    """Events of one repository."""

    def __init__(self, installation: int, repository: RepositoryFacts) -> None:
        self._installation = installation
        self._repository = Repository(
            id=repository.id,
            owner=repository.owner,
            name=repository.name,
            default_branch=repository.default_branch,
            private=repository.private,
            archived=repository.archived,
        )

    def labelled(self, issue: IssueFacts, put_on: HappenedFacts) -> Labelled:
        return Labelled(**self._by(_actor(put_on.actor)), subject=subject_of(issue), label=put_on.label)

    def commented(self, comment: CommentFacts, issue: IssueFacts) -> Commented:
        return Commented(**self._said(comment), subject=subject_of(issue))

    def review_commented(self, comment: InlineFacts, issue: IssueFacts) -> ReviewCommented:
        thread = Thread(
            comment=comment.root,
            path=comment.path,
            start=comment.start,
            end=comment.end,
            side=comment.side,
            hunk=comment.hunk,
        )
        return ReviewCommented(**self._said(comment), subject=subject_of(issue), thread=thread)

    def reviewed(self, review: ReviewFacts, issue: IssueFacts) -> Reviewed:
        who = Actor(id=review.author, login=review.author_name, type=review.kind)
        words: dict[str, Any] = {"id": review.id, "words": Words.of(review.body), "at": review.submitted_at}
        return Reviewed(**self._by(who), **words, subject=subject_of(issue), verdict=review.state)

    def checks_failed(self, pull: PullRequestFacts, failed: CheckFacts) -> ChecksFailed:
        """Nobody did it: whose checks they are is what counts."""
        return ChecksFailed(
            **self._by(NOBODY),
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
        """As if it had just moved: what is against it may conflict."""
        return Pushed(**self._by(NOBODY), branch=branch, before="", after="")

    def called_off(
        self, issue: IssueFacts, happened: Iterable[HappenedFacts], since: datetime
    ) -> Iterator[IssueChanged | Unlabelled]:
        """What ends a job: closed, or a label of ours taken off."""
        for each in happened:
            who = self._by(_actor(each.actor))
            if each.at < since:
                continue
            if each.event == "closed":
                yield IssueChanged(**who, change="closed", subject=subject_of(issue))
            elif each.event == "unlabeled" and each.label.casefold() in WORK_LABELS:
                yield Unlabelled(**who, subject=subject_of(issue), label=each.label)

    def deleted(self, number: int, *, is_pull_request: bool) -> IssueChanged:
        gone = Subject(
            number=number, is_pull_request=is_pull_request, title="", body=Words.of(""), author=None, labels=()
        )
        return IssueChanged(**self._by(NOBODY), change="deleted", subject=gone)

    def _by(self, actor: Actor) -> dict[str, Any]:
        return {"installation": self._installation, "repository": self._repository, "actor": actor}

    def _said(self, comment: CommentFacts) -> dict[str, Any]:
        who = Actor(id=comment.author, login=comment.author_name, type=comment.kind)
        said = {"id": comment.id, "words": Words.of(comment.body), "at": comment.created_at, "app": comment.app}
        return {**self._by(who), **said}


def lost(installation: int, repositories: tuple[int, ...] = ()) -> InstallationChanged:
    """An installation that is gone or suspended, or repositories that are in it no longer."""
    change: Literal["removed", "deleted"] = "removed" if repositories else "deleted"
    return InstallationChanged(installation=installation, actor=NOBODY, change=change, repositories=repositories)


def asks(text: str, author: int, us: int) -> bool:
    """Whether a text is addressed to the bot by somebody who still exists."""
    return author not in {0, us} and parse(text) is not None


def reviews_us(review: ReviewFacts, pull: PullRequestFacts, us: int) -> bool:
    """Whether a review is addressed to the bot, or asks its pull request for changes."""
    wants_changes = review.state == ASKS_FOR_CHANGES and pull.author == us
    return asks(review.body, review.author, us) or (wants_changes and review.author not in {0, us})


def subject_of(issue: IssueFacts) -> Subject:
    return Subject(
        number=issue.number,
        is_pull_request=issue.pull_request,
        title=issue.title,
        body=Words.of(issue.body),
        author=issue.author or None,
        labels=issue.labels,
    )


def _actor(account: Account) -> Actor:
    return Actor(id=account.id, login=account.login, type=account.kind)
