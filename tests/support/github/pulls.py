"""Pull requests: drafts, found by head, with files, reviews, inline comments. There is no route that merges."""

from tests.support.github.authentication import AccessDenied
from tests.support.github.faults import TEAM_UNSEEN
from tests.support.github.server import Answer, Ask, rest
from tests.support.github.views import files_view, inline_view, pull_view, requested_view, review_view, simple_pull_view
from tests.support.github.world import Comment, Pull


@rest("GET", "/pulls")
def list_pulls(ask: Ask) -> Answer:
    state, head = ask.query.get("state", "open"), ask.query.get("head", "")
    owner, _, branch = head.partition(":")
    found = [pull for pull in ask.repo.pulls if state in {"all", pull.state}]
    if base := ask.query.get("base"):
        found = [pull for pull in found if pull.pull and pull.pull.base == base]
    if ask.query.get("sort") == "updated":
        found.sort(key=lambda pull: pull.updated_at, reverse=ask.query.get("direction") == "asc")
    if head:
        found = [pull for pull in found if pull.pull and (owner, branch) == (ask.repo.owner.login, pull.pull.head)]
    return 200, [simple_pull_view(ask.repo, pull) for pull in reversed(found)]


@rest("POST", "/pulls")
def create_pull(ask: Ask) -> Answer:
    head, base, branches = ask.body["head"], ask.body["base"], ask.repo.branches
    if ask.repo.private and "contents" not in ask.token.permissions:  # seen in ShipfoxHQ/shipfox#1754; not published
        raise AccessDenied(422, "Validation Failed", errors=[{"message": "not all refs are readable"}])
    for name, field in ((head, "head"), (base, "base")):
        if name not in branches:
            raise AccessDenied(
                422, "Validation Failed", errors=[{"code": "invalid", "field": field, "resource": "PullRequest"}]
            )
    if branches[head] == branches[base]:
        raise AccessDenied(422, "Validation Failed", errors=[{"message": f"No commits between {base} and {head}"}])
    if any(
        pull.state == "open" and pull.pull and (pull.pull.head, pull.pull.fork) == (head, 0) for pull in ask.repo.pulls
    ):
        text = f"A pull request already exists for {ask.repo.owner.login}:{head}."
        raise AccessDenied(422, "Validation Failed", errors=[{"message": text, "code": "custom"}])
    draft = bool(ask.body.get("draft"))
    if draft and not ask.repo.drafts:  # SWE-agent/SWE-agent#179, getsentry/seer#1492: these very words
        raise AccessDenied(422, "Draft pull requests are not supported in this repository.")
    pull = Pull(head, base, draft)
    issue = ask.world.open_issue(ask.repo, ask.world.bot, ask.body["title"], ask.body.get("body") or "", pull=pull)
    return 201, pull_view(ask.repo, issue)


@rest("GET", "/pulls/{number:int}")
def get_pull(ask: Ask) -> Answer:
    return 200, pull_view(ask.repo, ask.pull)


@rest("PATCH", "/pulls/{number:int}")
def update_pull(ask: Ask) -> Answer:
    ask.pull.title = ask.body.get("title", ask.pull.title)
    ask.pull.body = ask.body.get("body", ask.pull.body)
    ask.pull.state = ask.body.get("state", ask.pull.state)
    return 200, pull_view(ask.repo, ask.pull)


@rest("GET", "/pulls/{number:int}/files")
def list_files(ask: Ask) -> Answer:
    assert ask.pull.pull is not None
    return 200, files_view(ask.repo, ask.pull.pull)


@rest("GET", "/pulls/{number:int}/reviews")
def list_reviews(ask: Ask) -> Answer:
    return 200, [review_view(review) for review in ask.pull.reviews]


@rest("GET", "/pulls/{number:int}/comments")
def list_inline(ask: Ask) -> Answer:
    number = ask.pull.number
    found = [comment for thread in ask.repo.threads if thread.number == number for comment in thread.comments]
    return 200, [inline_view(ask.repo, number, ask.repo.comments[comment]) for comment in found]


@rest("POST", "/pulls/{number:int}/comments/{id:int}/replies")
def reply(ask: Ask) -> Answer:
    threads = [thread for thread in ask.repo.threads if thread.number == ask.pull.number]
    thread = next((thread for thread in threads if ask.params["id"] in thread.comments), None)
    if thread is None:
        raise AccessDenied(404, "Not Found")
    now, world = ask.world.now, ask.world
    comment = Comment(
        world.large_number(), world.bot, ask.body["body"], now, now, path=thread.path, in_reply_to=thread.comments[0]
    )
    ask.repo.comments[comment.id] = comment
    thread.comments.append(comment.id)
    return 201, inline_view(ask.repo, ask.pull.number, comment)


@rest("GET", "/pulls/{number:int}/requested_reviewers")
def list_requested(ask: Ask) -> Answer:
    return 200, requested_view(ask.world, ask.pull)


@rest("POST", "/pulls/{number:int}/requested_reviewers")
def request_reviews(ask: Ask) -> Answer:
    """People have to be collaborators and not the author; a team has to be the owner's."""
    logins = {ask.world.users[user].login for user in ask.repo.collaborators if user in ask.world.users}
    for login in ask.body.get("reviewers", []):
        if login not in logins or login == ask.pull.user.login:
            raise AccessDenied(422, "Reviews may only be requested from collaborators.")
    if ask.body.get("team_reviewers") and "members" not in ask.token.permissions:
        raise AccessDenied(422, "Validation Failed", errors=TEAM_UNSEEN)
    wanted = [*ask.body.get("reviewers", []), *(f"team/{slug}" for slug in ask.body.get("team_reviewers", []))]
    ask.pull.asked += [name for name in wanted if name not in ask.pull.asked]
    return 201, simple_pull_view(ask.repo, ask.pull)
