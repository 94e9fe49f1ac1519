"""Corrects emulate's answers and webhooks wherever they differ from GitHub's."""

import re
from collections.abc import Callable
from typing import Any

from tests.support.emulate.diffs import followed, hunk
from tests.support.emulate.memory import Memory, Repo, stamp

_MILLISECONDS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{3}Z")
_SAME = (
    *("id", "node_id", "number", "title", "body", "user", "labels", "state", "locked", "assignee", "assignees"),
    *("milestone", "created_at", "updated_at", "closed_at", "author_association", "draft", "html_url", "comments"),
)
_CLOSES = re.compile(r"\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):? #(\d+)\b", re.IGNORECASE)
View = dict[str, Any]


def corrected(value: Any, memory: Memory, repo: Repo | None) -> Any:
    """The same value with every view in it put right; a payload also in what lies beside its views."""
    if isinstance(value, list):
        return [corrected(item, memory, repo) for item in value]
    if isinstance(value, str):
        told = _MILLISECONDS.fullmatch(value)
        return f"{told[1]}Z" if told else value
    if not isinstance(value, dict):
        return value
    whole: View = {key: corrected(item, memory, repo) for key, item in value.items()}
    if repo is not None:
        for recognised, dress in _DRESSES:
            if recognised(whole):
                dress(whole, memory, repo)
    return whole


def as_issue(pull: View) -> View:
    """The issue side of a pull request, which emulate does not show."""
    link = {"url": pull["url"], "html_url": pull["html_url"], "merged_at": pull["merged_at"]}
    repository = pull["url"].partition("/pulls/")[0]
    return {
        **{key: pull[key] for key in _SAME},
        "url": pull["issue_url"],
        "repository_url": repository,
        "comments_url": pull["comments_url"],
        "performed_via_github_app": None,
        "state_reason": None,
        "pull_request": link,
    }


def closed_by(text: str | None) -> set[int]:
    """The issues that a pull request with this text closes when it is merged."""
    return {int(number) for number in _CLOSES.findall(text or "")}


def _dress_pull(view: View, _memory: Memory, repo: Repo) -> None:
    pull = repo.pulls.get(view["number"])
    if pull is None:
        return
    view["head"]["sha"] = pull.head
    touched = repo.touched.get(pull.number)
    if touched is not None:
        view["updated_at"] = max(view["updated_at"], stamp(touched))
    if pull.merged is not None:
        view.update(pull.merged)


def _dress_issue(view: View, _memory: Memory, repo: Repo) -> None:
    """An issue in a webhook about a comment, which may be a pull request's."""
    if view["number"] in repo.pulls and "pull_request" not in view:
        url = f"{view['repository_url']}/pulls/{view['number']}"
        view["html_url"] = view["html_url"].replace("/issues/", "/pull/")
        view["pull_request"] = {"url": url, "html_url": view["html_url"]}


def _dress_inline(view: View, _memory: Memory, repo: Repo) -> None:
    number = int(view["pull_request_url"].rpartition("/")[2])
    pull, noted = repo.pulls[number], repo.inline.get(view["id"])
    line, commit = view["line"], view["commit_id"]
    view["original_line"] = line
    view["start_line"] = view["original_start_line"] = noted.start_line if noted else None
    view["pull_request_review_id"] = noted.review if noted else None
    if line is None or view["side"] == "LEFT":
        return
    view["diff_hunk"] = hunk(repo.path, pull.base_sha, commit, view["path"], line)
    view["line"] = followed(repo.path, commit, pull.head, view["path"], line)
    if view["line"] is None:
        view["start_line"] = None


def _dress_check(view: View, memory: Memory, repo: Repo) -> None:
    noted = repo.checks.get(view["id"])
    view["app"] = noted.app if noted else memory.app
    here = [pull for pull in repo.pulls.values() if pull.open and pull.head == view["head_sha"]]
    view["pull_requests"] = [{"id": pull.number, "number": pull.number} for pull in here]


def _dress_said(view: View, memory: Memory, _repo: Repo) -> None:
    """What the App has said tells which App that is."""
    if view["user"] and view["user"]["login"] == memory.bot:
        view["performed_via_github_app"] = memory.app


def _dress_payload(view: View, _memory: Memory, _repo: Repo) -> None:
    pull = view.get("pull_request")
    if pull:
        view["number"] = pull["number"]


_DRESSES: tuple[tuple[Callable[[View], bool], Callable[[View, Memory, Repo], None]], ...] = (
    (lambda view: {"head", "base", "merge_commit_sha"} <= view.keys(), _dress_pull),
    (lambda view: {"number", "repository_url", "title"} <= view.keys(), _dress_issue),
    (lambda view: {"diff_hunk", "pull_request_url"} <= view.keys(), _dress_inline),
    (lambda view: {"external_id", "head_sha", "check_suite"} <= view.keys(), _dress_check),
    (lambda view: {"performed_via_github_app", "user"} <= view.keys(), _dress_said),
    (lambda view: {"sender", "repository", "pull_request"} <= view.keys(), _dress_payload),
)
