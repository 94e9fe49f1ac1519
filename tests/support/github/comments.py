"""Comments and events: by number, since a time, and as an issue's events."""

import re
from datetime import datetime

from githubkit_schemas.latest import models

from tests.support.github.authentication import AccessDenied
from tests.support.github.server import Answer, Ask, rest
from tests.support.github.shapes import shaped
from tests.support.github.views import SITE, comment_view, inline_view, issue_view, review_view, user_view, when
from tests.support.github.world import Comment, Issue, WorldEvent
from tests.support.repositories import git


@rest("GET", "/issues/comments")
def list_repository_comments(ask: Ask) -> Answer:
    found = [(issue, ask.repo.comments[number]) for issue in ask.repo.issues.values() for number in issue.comments]
    return 200, [comment_view(ask.repo, issue, comment) for issue, comment in _since(ask, found)]


@rest("GET", "/pulls/comments")
def list_repository_inline(ask: Ask) -> Answer:
    found = [
        (ask.repo.issues[thread.number], ask.repo.comments[number])
        for thread in ask.repo.threads
        for number in thread.comments
    ]
    return 200, [inline_view(ask.repo, issue.number, comment) for issue, comment in _since(ask, found)]


@rest("GET", "/issues/comments/{id:int}")
def get_comment(ask: Ask) -> Answer:
    for issue in ask.repo.issues.values():
        if ask.params["id"] in issue.comments:
            return 200, comment_view(ask.repo, issue, ask.repo.comments[ask.params["id"]])
    raise AccessDenied(404, "Not Found")


@rest("GET", "/pulls/comments/{id:int}")
def get_inline(ask: Ask) -> Answer:
    for thread in ask.repo.threads:
        if ask.params["id"] in thread.comments:
            return 200, inline_view(ask.repo, thread.number, ask.repo.comments[ask.params["id"]])
    raise AccessDenied(404, "Not Found")


@rest("GET", "/pulls/{number:int}/reviews/{id:int}")
def get_review(ask: Ask) -> Answer:
    review = next((review for review in ask.pull.reviews if review.id == ask.params["id"]), None)
    if review is None:
        raise AccessDenied(404, "Not Found")
    return 200, review_view(review)


@rest("GET", "/issues/{number:int}/events")
def list_events(ask: Ask) -> Answer:
    return 200, [_event_view(ask, event) for event in ask.issue.events]


@rest("GET", "/issues/{number:int}/timeline")
def list_timeline(ask: Ask) -> Answer:
    """Of the timeline, where other issues and pull requests of the repository name this one."""
    named = re.compile(rf"(?<![\w/])#{ask.issue.number}(?!\d)")
    said = [(each, [each.title, each.body, *_comments(ask, each)]) for each in ask.repo.issues.values()]
    found = [each for each, texts in said if each is not ask.issue and any(map(named.search, texts))]
    return 200, [_reference_view(ask, each) for each in found]


def _comments(ask: Ask, issue: Issue) -> list[str]:
    return [ask.repo.comments[number].body for number in issue.comments]


def _reference_view(ask: Ask, issue: Issue) -> dict[str, object]:
    source = shaped(models.TimelineCrossReferencedEventPropSource, type="issue", issue=issue_view(ask.repo, issue))
    made: dict[str, object] = shaped(models.TimelineCrossReferencedEvent, event="cross-referenced", source=source)
    return made


@rest("GET", "/pulls/{number:int}/commits")
def list_commits(ask: Ask) -> Answer:
    assert ask.pull.pull is not None
    span = f"{ask.repo.branches[ask.pull.pull.base]}..{ask.repo.branches[ask.pull.pull.head]}"
    ids = git(ask.repo.path, "rev-list", "--reverse", span).split()
    return 200, [_commit_view(ask, commit) for commit in ids]


@rest("GET", "/compare/{span}")
def compare(ask: Ask) -> Answer:
    base, _, head = ask.params["span"].partition("...")
    common = git(ask.repo.path, "merge-base", base, head, check=False)
    if not common:
        raise AccessDenied(404, "Not Found")
    ends = {"base_commit": _commit_view(ask, base), "merge_base_commit": _commit_view(ask, common)}
    return 200, shaped(models.CommitComparison, **ends)


def _since(ask: Ask, found: list[tuple[Issue, Comment]]) -> list[tuple[Issue, Comment]]:
    since = datetime.fromisoformat(ask.query["since"])
    return sorted((pair for pair in found if pair[1].updated_at >= since), key=lambda pair: pair[1].updated_at)


def _event_view(ask: Ask, event: WorldEvent) -> dict[str, object]:
    label = {"label": {"name": event.label, "color": "ededed"}} if event.label else {}
    if event.assignee:  # the actor of an assignment is who was assigned, the assigner who did it
        label = {"assignee": user_view(event.assignee), "assigner": user_view(event.user)}
    if event.rename:
        label = {"rename": {"from": event.rename[0], "to": event.rename[1]}}
    shapes = {
        "renamed": models.RenamedIssueEvent,
        "labeled": models.LabeledIssueEvent,
        "unlabeled": models.UnlabeledIssueEvent,
        "assigned": models.AssignedIssueEvent,
    }
    shape = shapes.get(event.event, models.StateChangeIssueEvent)
    made: dict[str, object] = shaped(
        shape,
        id=ask.world.number(),
        event=event.event,
        actor=user_view(event.assignee or event.user),
        created_at=when(event.at),
        url=f"{SITE}/api/events",
        **label,
    )
    return made


def _commit_view(ask: Ask, sha: str) -> dict[str, object]:
    shown = git(ask.repo.path, "show", "-s", "--format=%an%n%ae%n%B", sha)
    name, email, message = shown.split("\n", 2)
    author = shaped(models.GitUser, name=name, email=email)
    commit = shaped(models.CommitPropCommit, author=author, message=message.strip())
    made: dict[str, object] = shaped(models.Commit, sha=sha, commit=commit)
    return made
