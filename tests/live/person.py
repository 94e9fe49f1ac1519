"""Who asks for `make live`: the person behind GITHUB_TOKEN, by GitHub's API and by git."""

import base64
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.support.repositories import ENVIRONMENT


class Refused(Exception):  # noqa: N818  # an answer
    """GitHub said no to the person."""


class Person:
    """One account at one repository."""

    def __init__(self, api: str, site: str, repository: str, token: str) -> None:
        self._repository = repository
        self._address = f"{site.rstrip('/')}/{repository}.git"
        headers = {"authorization": f"Bearer {token}", "accept": "application/vnd.github+json"}
        self._client = httpx.Client(base_url=api, headers=headers, timeout=60.0, follow_redirects=True)
        self.account = self._asked("GET", "/user")
        basic = base64.b64encode(f"{self.account['login']}:{token}".encode()).decode()
        self._credentials = f"Authorization: Basic {basic}"

    def ask(self, method: str, path: str = "", /, **body: Any) -> Any:
        """A request below the repository."""
        return self._asked(method, f"/repos/{self._repository}{path}", body)

    def push(self, branch: str, files: Mapping[str, str]) -> tuple[str, str]:
        """A commit of these files on top of a branch; where it was before and where it is now."""
        with tempfile.TemporaryDirectory(prefix="agent-fix-live-") as directory:
            place = Path(directory) / "work"
            self._git(Path(directory), "clone", "-q", "--template=", self._address, str(place))
            for name, text in files.items():
                (place / name).write_text(text)
            self._git(place, "add", "-A")
            self._git(place, "commit", "-q", "-m", "agent-fix live check")
            self._git(place, "push", "-q", self._address, f"HEAD:refs/heads/{branch}")
            return self._git(place, "rev-parse", "HEAD^"), self._git(place, "rev-parse", "HEAD")

    def reset(self, branch: str, now: str, before: str) -> None:
        """A branch back to where it was, unless it has moved since."""
        with tempfile.TemporaryDirectory(prefix="agent-fix-live-") as directory:
            place = Path(directory) / "work"
            self._git(Path(directory), "clone", "-q", "--template=", self._address, str(place))
            lease = f"--force-with-lease=refs/heads/{branch}:{now}"
            self._git(place, "push", "-q", lease, self._address, f"{before}:refs/heads/{branch}")

    def delete_branch(self, branch: str) -> None:
        with tempfile.TemporaryDirectory(prefix="agent-fix-live-") as directory:
            self._git(Path(directory), "init", "-q", "--template=")
            self._git(Path(directory), "push", "-q", self._address, f":refs/heads/{branch}")

    def _asked(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        answer = self._client.request(method, path, json=body or None)
        if not answer.is_success:
            raise Refused(f"{method} {path}: GitHub answered {answer.status_code}: {answer.text[:200]}")
        return answer.json() if answer.content else None

    def _git(self, place: Path, *arguments: str) -> str:
        """The token is in git's environment, not in its arguments, which other accounts of a machine can see."""
        given = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": self._credentials,
        }
        proxy = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
        who = f"{self.account['id']}+{self.account['login']}@users.noreply.github.com"
        named = {"GIT_AUTHOR_EMAIL": who, "GIT_COMMITTER_EMAIL": who}
        named |= {"GIT_AUTHOR_NAME": self.account["login"], "GIT_COMMITTER_NAME": self.account["login"]}
        dates = {"GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"}
        environment = {name: value for name, value in ENVIRONMENT.items() if name not in dates}
        done = subprocess.run(
            ["git", "-C", str(place), *arguments],
            capture_output=True,
            text=True,
            env={**environment, **proxy, **named, **given, "GIT_TERMINAL_PROMPT": "0"},
            check=False,
            timeout=120,
        )
        if done.returncode:
            raise Refused(f"git {arguments[0]}: {done.stderr.strip()[-300:]}")
        return done.stdout.strip()
