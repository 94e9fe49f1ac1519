"""People of a test: what they do on the site is done with their own tokens, over the same API as everybody's."""

import base64
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.support.repositories import commit_files, git


class Refused(Exception):  # noqa: N818  # an answer
    """The site said no to a person."""

    def __init__(self, answer: httpx.Response) -> None:
        super().__init__(f"{answer.status_code}: {answer.text[:300]}")
        self.status = answer.status_code


@dataclass(frozen=True)
class InlineComment:
    """On a line of a pull request's new files; from `start_line` on where it is about several."""

    path: str
    line: int
    body: str
    start_line: int | None = None

    @property
    def sent(self) -> dict[str, Any]:
        sent: dict[str, Any] = {"path": self.path, "line": self.line, "body": self.body, "side": "RIGHT"}
        return sent if self.start_line is None else {**sent, "start_line": self.start_line, "start_side": "RIGHT"}


class Person:
    """One account in one repository; numbers that come back are GitHub's own."""

    def __init__(self, client: httpx.Client, token: str, login: str, repository: str) -> None:
        self.login = login
        self._client = client
        self._token = token
        self._repository = repository

    def open_issue(self, title: str, body: str = "", labels: Sequence[str] = ()) -> int:
        number = self._number("POST", "/issues", title=title, body=body)
        if labels:  # emulate tells nobody of labels that an issue is opened with
            self.label(number, *labels)
        return number

    def edit_issue(self, number: int, **changes: str) -> None:
        """`title` or `body`, of an issue or a pull request."""
        self._ask("PATCH", f"/issues/{number}", **changes)

    def close(self, number: int) -> None:
        """An issue or a pull request."""
        self._ask("PATCH", f"/issues/{number}", state="closed")

    def reopen(self, number: int) -> None:
        self._ask("PATCH", f"/issues/{number}", state="open")

    def label(self, number: int, *names: str) -> None:
        self._ask("POST", f"/issues/{number}/labels", labels=list(names))

    def unlabel(self, number: int, name: str) -> None:
        self._ask("DELETE", f"/issues/{number}/labels/{name}")

    def comment(self, number: int, body: str) -> int:
        return self._id("POST", f"/issues/{number}/comments", body=body)

    def edit_comment(self, comment: int, body: str) -> None:
        self._ask("PATCH", f"/issues/comments/{comment}", body=body)

    def delete_comment(self, comment: int) -> None:
        self._ask("DELETE", f"/issues/comments/{comment}")

    def comment_inline(self, number: int, comment: InlineComment) -> int:
        return self._id("POST", f"/pulls/{number}/comments", **comment.sent)

    def reply(self, number: int, comment: int, body: str) -> int:
        """In the thread of any of its comments."""
        return self._id("POST", f"/pulls/{number}/comments/{comment}/replies", body=body)

    def review(
        self, number: int, body: str = "", event: str = "COMMENT", comments: Sequence[InlineComment] = ()
    ) -> int:
        """Submitted at once; `event` is COMMENT, REQUEST_CHANGES or APPROVE."""
        sent = [comment.sent for comment in comments]
        return self._id("POST", f"/pulls/{number}/reviews", body=body, event=event, comments=sent)

    def open_pull(self, branch: str, title: str, body: str = "", *, base: str = "main", draft: bool = False) -> int:
        return self._number("POST", "/pulls", head=branch, base=base, title=title, body=body, draft=draft)

    def make_ready(self, number: int) -> None:
        """Out of draft, as by the button."""
        self._ask("PATCH", f"/pulls/{number}", draft=False)

    def merge(self, number: int) -> str:
        """The merge's commit."""
        return str(self._ask("PUT", f"/pulls/{number}/merge")["sha"])

    def push(self, branch: str, files: Mapping[str, str | bytes], message: str = "mine") -> str:
        """A commit on top of a branch, new or not, by real git over HTTP; its id."""
        with tempfile.TemporaryDirectory(prefix="agent-fix-person-") as directory:
            work = Path(directory) / "work"
            self._git(Path(directory), "clone", "-q", "--template=", self._address, str(work))
            known = git(work, "rev-parse", "-q", "--verify", f"refs/remotes/origin/{branch}", check=False)
            git(work, "checkout", "-q", "--detach", known or "refs/remotes/origin/HEAD")
            commit = commit_files(work, files, message)
            self._git(work, "push", "-q", self._address, f"{commit}:refs/heads/{branch}")
        return commit

    def delete_branch(self, branch: str) -> None:
        with tempfile.TemporaryDirectory(prefix="agent-fix-person-") as directory:
            work = Path(directory)
            git(work, "init", "-q", "--template=")
            self._git(work, "push", "-q", self._address, f":refs/heads/{branch}")

    def run_check(self, commit: str, name: str, conclusion: str, meanwhile: Callable[[int], None]) -> int:
        """A check run that is in progress, and then is not."""
        made = self._id("POST", "/check-runs", head_sha=commit, name=name, status="in_progress")
        meanwhile(made)
        self._ask("PATCH", f"/check-runs/{made}", status="completed", conclusion=conclusion)
        return made

    def set_status(self, commit: str, context: str, state: str) -> None:
        self._ask("POST", f"/statuses/{commit}", context=context, state=state)

    @property
    def number(self) -> int:
        """The account's own, which does not change with its login."""
        whole = self._client.get("/user", headers={"authorization": f"Bearer {self._token}"}).raise_for_status()
        return int(whole.json()["id"])

    @property
    def _address(self) -> str:
        return f"{str(self._client.base_url).rstrip('/')}/{self._repository}.git"

    def _git(self, place: Path, *arguments: str) -> None:
        credentials = base64.b64encode(f"{self.login}:{self._token}".encode()).decode()
        git(place, "-c", f"http.extraHeader=Authorization: Basic {credentials}", *arguments)

    def _number(self, method: str, path: str, /, **body: Any) -> int:
        return int(self._ask(method, path, **body)["number"])

    def _id(self, method: str, path: str, /, **body: Any) -> int:
        return int(self._ask(method, path, **body)["id"])

    def _ask(self, method: str, path: str, /, **body: Any) -> Any:
        answer = self._client.request(
            method,
            f"/repos/{self._repository}{path}",
            headers={"authorization": f"Bearer {self._token}"},
            json=body or None,
        )
        if not answer.is_success:
            raise Refused(answer)
        return answer.json() if answer.content else None
