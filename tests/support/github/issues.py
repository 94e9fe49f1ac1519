"""Issues: text, comments, labels, reactions."""

from datetime import datetime

from tests.support.github.authentication import AccessDenied
from tests.support.github.server import Answer, Ask, rest
from tests.support.github.views import comment_view, issue_view, label_view, reaction_view
from tests.support.github.world import Comment, Issue

MOST_BODY = 65_536
MOST_TITLE = 256


def checked(body: object) -> str:
    if not isinstance(body, str) or not body.strip():
        raise AccessDenied(
            422, "Validation Failed", errors=[{"resource": "Issue", "code": "missing_field", "field": "body"}]
        )
    if len(body) > MOST_BODY:
        raise AccessDenied(
            422, "Validation Failed", errors=[{"message": "body is too long (maximum is 65536 characters)"}]
        )
    return body


@rest("GET", "/issues")
def list_issues(ask: Ask) -> Answer:
    wanted = [label for label in ask.query.get("labels", "").split(",") if label]
    state = ask.query.get("state", "open")
    since = datetime.fromisoformat(ask.query.get("since", "1970-01-01T00:00:00Z"))
    found = [
        issue
        for issue in ask.repo.issues.values()
        if state in {"all", issue.state}
        and all(label in issue.labels for label in wanted)
        and issue.updated_at >= since
    ]
    found.sort(key=lambda issue: issue.updated_at, reverse=ask.query.get("direction") != "asc")
    return 200, [issue_view(ask.repo, issue) for issue in found]


@rest("POST", "/issues")
def create_issue(ask: Ask) -> Answer:
    title, body = ask.body.get("title"), ask.body.get("body") or ""
    if not isinstance(title, str) or not title.strip():
        raise AccessDenied(
            422, "Validation Failed", errors=[{"resource": "Issue", "code": "missing_field", "field": "title"}]
        )
    if len(title) > MOST_TITLE:
        raise AccessDenied(422, "Validation Failed", errors=[{"message": "title is too long (maximum is 256)"}])
    issue = ask.world.open_issue(ask.repo, ask.world.bot, title, checked(body) if body else "")
    return 201, issue_view(ask.repo, issue)


@rest("GET", "/issues/{number:int}")
def get_issue(ask: Ask) -> Answer:
    return 200, issue_view(ask.repo, ask.issue)


@rest("GET", "/issues/{number:int}/comments")
def list_comments(ask: Ask) -> Answer:
    return 200, [comment_view(ask.repo, ask.issue, ask.repo.comments[number]) for number in ask.issue.comments]


@rest("POST", "/issues/{number:int}/comments")
def create_comment(ask: Ask) -> Answer:
    if ask.issue.locked:
        raise AccessDenied(403, "Unable to create comment because issue is locked.")
    comment = ask.world.comment(ask.repo, ask.issue, ask.world.bot, checked(ask.body.get("body")))
    return 201, comment_view(ask.repo, ask.issue, comment)


@rest("PATCH", "/issues/comments/{id:int}")
def update_comment(ask: Ask) -> Answer:
    issue, comment = _found(ask)
    ask.world.edit(comment, checked(ask.body.get("body")))
    return 200, comment_view(ask.repo, issue, comment)


def _found(ask: Ask) -> tuple[Issue, Comment]:
    number = ask.params["id"]
    for issue in ask.repo.issues.values():
        if number in issue.comments:
            return issue, ask.repo.comments[number]
    raise AccessDenied(404, "Not Found")


@rest("GET", "/issues/{number:int}/labels")
def list_labels(ask: Ask) -> Answer:
    return 200, [label_view(name) for name in ask.issue.labels]


@rest("POST", "/issues/{number:int}/labels")
def add_labels(ask: Ask) -> Answer:
    for name in ask.body["labels"]:
        if name not in ask.issue.labels:
            ask.world.label(ask.issue, ask.world.bot, name)
    return 200, [label_view(name) for name in ask.issue.labels]


@rest("DELETE", "/issues/{number:int}/labels/{label}")
def remove_label(ask: Ask) -> Answer:
    if ask.params["label"] not in ask.issue.labels:
        raise AccessDenied(404, "Label does not exist")
    ask.world.label(ask.issue, ask.world.bot, ask.params["label"], off=True)
    return 200, [label_view(name) for name in ask.issue.labels]


def _react(ask: Ask, kind: str, number: int) -> Answer:
    reaction = (kind, number, ask.world.bot.id, ask.body["content"])
    there = reaction in ask.repo.reactions
    if not there:
        ask.repo.reactions.append(reaction)
    place = ask.repo.reactions.index(reaction) + 1
    return (200 if there else 201), reaction_view(ask.world, place, ask.world.bot.id, ask.body["content"])


@rest("POST", "/issues/{number:int}/reactions")
def react_to_issue(ask: Ask) -> Answer:
    return _react(ask, "issues", ask.issue.number)


@rest("POST", "/issues/comments/{id:int}/reactions")
def react_to_comment(ask: Ask) -> Answer:
    return _react(ask, "issue comments", _found(ask)[1].id)


@rest("POST", "/pulls/comments/{id:int}/reactions")
def react_to_review_comment(ask: Ask) -> Answer:
    if ask.params["id"] not in ask.repo.comments:
        raise AccessDenied(404, "Not Found")
    return _react(ask, "pull comments", ask.params["id"])
