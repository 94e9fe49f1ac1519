"""Pull requests where emulate falls short: one for a branch, files, inline comments with lines, replies, a merge."""

from typing import Any

from tests.support.emulate.corrections import closed_by, corrected
from tests.support.emulate.front import IN_REPO, Answer, Ask, answers, paged
from tests.support.emulate.git_http import merge_commit, moved
from tests.support.emulate.issues import patch_pull
from tests.support.emulate.memory import Inline, Pull, now, stamp
from tests.support.github.authentication import AccessDenied
from tests.support.repositories import git

PULL = IN_REPO + "/pulls/{number:int}"


@answers("POST", IN_REPO + "/pulls")
async def create(ask: Ask) -> Answer:
    repo, branches = ask.within, ask.within.branches()
    ask.body["head"] = branch = str(ask.body.get("head", "")).removeprefix(f"{repo.owner}:")
    base = ask.body.get("base", "")
    if branch not in branches or base not in branches:
        raise _invalid("head" if branch not in branches else "base", "invalid")
    if repo.open_pulls_of(branch):
        raise _invalid("", "custom", f"A pull request already exists for {repo.owner}:{branch}.")
    if not git(repo.path, "rev-list", "-1", branches[branch], "--not", branches[base]):
        raise _invalid("", "custom", f"No commits between {base} and {branch}")
    if not repo.actions_may_open:  # peter-evans/create-pull-request#1175, #3979: these very words
        raise AccessDenied(403, "GitHub Actions is not permitted to create or approve pull requests.")
    if ask.body.get("draft") and not repo.drafts:  # SWE-agent/SWE-agent#179, getsentry/seer#1492: these very words
        raise AccessDenied(422, "Draft pull requests are not supported in this repository.")
    status, made = await ask.passed_on()
    pull = Pull(made["number"], branch, base, branches[base], branches[branch])
    repo.pulls[pull.number] = pull
    git(repo.path, "update-ref", f"refs/pull/{pull.number}/head", pull.head)
    return status, made


@answers("GET", PULL + "/files")
async def files(ask: Ask) -> Answer:
    """Emulate's comparison of the two commits."""
    ask.needs("pull_requests")
    pull = _pull(ask)
    compared = await ask.front.look(f"{ask.within.api}/compare/{pull.base_sha}...{pull.head}")
    return paged(ask, compared["files"])


@answers("GET", PULL + "/commits")
async def commits(ask: Ask) -> Answer:
    """Emulate's list begins with the base."""
    ask.needs("pull_requests")
    pull = _pull(ask)
    compared = await ask.front.look(f"{ask.within.api}/compare/{pull.base_sha}...{pull.head}")
    return paged(ask, corrected(compared["commits"], ask.front.memory, ask.within))


@answers("GET", PULL + "/requested_reviewers")
async def requested_reviewers(ask: Ask) -> Answer:
    view = await ask.emulate("GET", f"{ask.within.api}/pulls/{_pull(ask).number}")
    return 200, {"users": view["requested_reviewers"], "teams": view["requested_teams"]}


@answers("POST", PULL + "/comments")
async def comment_inline(ask: Ask) -> Answer:
    ask.body.setdefault("commit_id", _pull(ask).head)
    ask.body.setdefault("side", "RIGHT")
    if "in_reply_to" in ask.body:
        return await _reply(ask, ask.body["in_reply_to"])
    status, made = await ask.passed_on()
    ask.within.inline[made["id"]] = Inline(start_line=ask.body.get("start_line"))
    return status, made


@answers("POST", PULL + "/comments/{comment:int}/replies")
async def reply(ask: Ask) -> Answer:
    _pull(ask)
    return await _reply(ask, ask.params["comment"])


async def _reply(ask: Ask, comment: int) -> Answer:
    """In the same place as the comment that began the thread, whichever of the thread's comments was answered."""
    repo, number = ask.within, ask.params["number"]
    first = await ask.front.look(f"{repo.api}/pulls/comments/{comment}")
    first_id = first["in_reply_to_id"] or first["id"]
    place = {"path": first["path"], "line": first["line"], "side": first["side"], "commit_id": first["commit_id"]}
    said = {"body": ask.body.get("body"), "in_reply_to_id": first_id, **place}
    made = await ask.emulate("POST", f"{repo.api}/pulls/{number}/comments", json=said)
    repo.inline[made["id"]] = Inline(start_line=repo.inline.get(first_id, Inline()).start_line)
    return 201, made


@answers("POST", PULL + "/reviews")
async def review(ask: Ask) -> Answer:
    """The review, then each of its inline comments, so that every one of them has its line and its webhook."""
    repo, pull = ask.within, _pull(ask)
    comments = ask.body.pop("comments", [])
    ask.body.setdefault("commit_id", pull.head)
    status, made = await ask.passed_on()
    for comment in comments:
        said = {"side": "RIGHT", "commit_id": made["commit_id"], **comment}
        placed = await ask.emulate("POST", f"{repo.api}/pulls/{pull.number}/comments", json=said)
        repo.inline[placed["id"]] = Inline(comment.get("start_line"), made["id"])
    return status, made


@answers("PUT", PULL + "/merge")
async def merge(ask: Ask) -> Answer:
    """What is on the two branches now, merged by git; emulate would merge the head that it was opened with."""
    repo, pull = ask.within, _pull(ask)
    view = await ask.emulate("GET", f"{repo.api}/pulls/{pull.number}")
    token = ask.needs("contents", "write")
    if not pull.open or view["draft"]:
        raise AccessDenied(405, "Pull Request is still a draft" if pull.open else "Pull Request is not mergeable")
    if ask.body.get("sha", pull.head) != pull.head:
        raise AccessDenied(409, "Head branch was modified. Review and try the merge again.")
    user = await ask.front.user(token.login)
    before = repo.branches()
    message = f"Merge pull request #{pull.number} from {repo.owner}/{pull.branch}\n\n{view['title']}\n"
    commit = merge_commit(repo.path, before[pull.base], pull.head, message)
    if commit is None:
        raise AccessDenied(405, "Pull Request is not mergeable")
    pull.merged = {"merged": True, "merged_at": stamp(now()), "merged_by": user, "merge_commit_sha": commit}
    git(repo.path, "update-ref", f"refs/heads/{pull.base}", commit, before[pull.base])
    await moved(ask.front, repo, token, before)
    ask.body = {"state": "closed"}
    await patch_pull(ask, pull.number)
    for number in sorted(closed_by(view["body"]) - repo.pulls.keys()):
        await ask.emulate("PATCH", f"{repo.api}/issues/{number}", json=ask.body)
    return 200, {"sha": commit, "merged": True, "message": "Pull Request successfully merged"}


def _pull(ask: Ask) -> Pull:
    pull = ask.within.pulls.get(ask.params["number"])
    if pull is None:
        raise AccessDenied(404, "Not Found")
    return pull


def _invalid(field: str, code: str, message: str = "") -> AccessDenied:
    error: dict[str, Any] = {"resource": "PullRequest", "field": field, "code": code}
    return AccessDenied(422, "Validation Failed", errors=[{**error, "message": message} if message else error])
