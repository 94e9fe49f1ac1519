"""What a test sees on the site: one repository read with its owner's eyes, as small values."""

import time
from dataclasses import dataclass
from typing import Any

import httpx

from tests.support.emulate.memory import Repo

REPLAYED = 10.0
"""Seconds that a push may take from git to emulate."""


@dataclass(frozen=True)
class Issue:
    """An issue, or the issue side of a pull request."""

    number: int
    title: str
    body: str
    author: str
    open: bool
    labels: tuple[str, ...]
    is_pull_request: bool


@dataclass(frozen=True)
class Comment:
    """On the conversation; inline where `path` is given, with the line that it is on now (None: outdated)."""

    id: int
    author: str
    body: str
    path: str = ""
    line: int | None = None
    reply_to: int | None = None


@dataclass(frozen=True)
class PullRequest:
    number: int
    title: str
    body: str
    author: str
    branch: str
    head: str
    base: str
    draft: bool
    open: bool
    merged: bool
    reviewers: tuple[str, ...]
    """Who was asked for a review."""


@dataclass(frozen=True)
class CheckRun:
    id: int
    name: str
    status: str
    conclusion: str | None
    title: str
    summary: str
    app: str


class Site:
    """Reads, each anew."""

    def __init__(self, client: httpx.Client, authorization: str, repo: Repo) -> None:
        self._client = client
        self._authorization = authorization
        self._repo = repo

    def issue(self, number: int) -> Issue:
        return _issue(self._read(f"/issues/{number}"))

    def issues(self) -> tuple[Issue, ...]:
        """Open ones and closed ones, pull requests among them."""
        return tuple(_issue(item) for item in self._list("/issues", state="all", direction="asc"))

    def labels(self, number: int) -> set[str]:
        return set(self.issue(number).labels)

    def comments(self, number: int) -> tuple[Comment, ...]:
        return tuple(_comment(item) for item in self._list(f"/issues/{number}/comments"))

    def inline_comments(self, number: int) -> tuple[Comment, ...]:
        return tuple(_comment(item) for item in self._list(f"/pulls/{number}/comments"))

    def pull(self, number: int) -> PullRequest:
        return _pull(self._read(f"/pulls/{number}"))

    def pulls(self) -> tuple[PullRequest, ...]:
        """Open ones and closed ones, in the order of their numbers."""
        return tuple(_pull(item) for item in sorted(self._list("/pulls", state="all"), key=lambda item: item["number"]))

    def check_runs(self, commit: str) -> tuple[CheckRun, ...]:
        return tuple(_check(item) for item in self._read(f"/commits/{commit}/check-runs?filter=all")["check_runs"])

    def branches(self) -> dict[str, str]:
        """With the commits that they are at, as emulate says; git says the same at once, or replaying is broken."""
        end = time.monotonic() + REPLAYED
        while True:
            found = {item["name"]: item["commit"]["sha"] for item in self._list("/branches")}
            if found == self._repo.branches():
                return found
            assert time.monotonic() < end, f"emulate has {found}, git has {self._repo.branches()}"
            time.sleep(0.05)

    def reactions(self, subject: str) -> list[tuple[str, str]]:
        """(login, content), in order; `subject` is `issues/1`, `issues/comments/2` or `pulls/comments/3`."""
        return [(item.login, item.content) for item in self._repo.reactions if item.subject == subject]

    def file(self, path: str, ref: str = "main") -> bytes | None:
        """A file's bytes, as emulate has them."""
        headers = {"accept": "application/vnd.github.raw+json"}
        answer = self._send(f"/contents/{path}?ref={ref}", headers)
        return answer.raise_for_status().content if answer.status_code != 404 else None

    def _read(self, path: str) -> Any:
        return self._send(path, {}).raise_for_status().json()

    def _list(self, path: str, **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        page = 1
        while True:
            asked = "&".join(f"{key}={value}" for key, value in {**query, "per_page": "100", "page": page}.items())
            answer = self._send(f"{path}?{asked}", {}).raise_for_status()
            found += answer.json()
            page += 1
            if "next" not in answer.links:
                return found

    def _send(self, path: str, headers: dict[str, str]) -> httpx.Response:
        whole = {"authorization": self._authorization, **headers}
        return self._client.get(f"{self._repo.api}{path}", headers=whole)


def _issue(item: dict[str, Any]) -> Issue:
    return Issue(
        number=item["number"],
        title=item["title"],
        body=item["body"] or "",
        author=item["user"]["login"],
        open=item["state"] == "open",
        labels=tuple(label["name"] for label in item["labels"]),
        is_pull_request="pull_request" in item,
    )


def _comment(item: dict[str, Any]) -> Comment:
    return Comment(
        id=item["id"],
        author=item["user"]["login"],
        body=item["body"],
        path=item.get("path") or "",
        line=item.get("line"),
        reply_to=item.get("in_reply_to_id"),
    )


def _pull(item: dict[str, Any]) -> PullRequest:
    return PullRequest(
        number=item["number"],
        title=item["title"],
        body=item["body"] or "",
        author=item["user"]["login"],
        branch=item["head"]["ref"],
        head=item["head"]["sha"],
        base=item["base"]["ref"],
        draft=item["draft"],
        open=item["state"] == "open",
        merged=item["merged_at"] is not None,
        reviewers=tuple(account["login"] for account in item["requested_reviewers"]),
    )


def _check(item: dict[str, Any]) -> CheckRun:
    return CheckRun(
        id=item["id"],
        name=item["name"],
        status=item["status"],
        conclusion=item["conclusion"],
        title=item["output"]["title"] or "",
        summary=item["output"]["summary"] or "",
        app=item["app"]["slug"],
    )
