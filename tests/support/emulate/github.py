"""The whole: emulate, the front before it and a receiver's address, as one GitHub that tests talk to.

with emulated_github() as github:
    repository = github.add_repository("sample", {"README.md": "# Sample\\n"})
    github.receiver = "http://127.0.0.1:8080/webhook"
    ada = repository.as_user("ada")
    issue = ada.open_issue("It breaks")
    ada.label(issue, "agent-fix")
    github.wait(lambda: repository.site.comments(issue), "the status comment")
"""

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx
import jwt

from app.github.auth import PERMISSIONS
from tests.support.emulate import accounts, checks, comments, git_http, issues, pulls, threads
from tests.support.emulate.front import Front
from tests.support.emulate.memory import Call, Memory, Repo, Token
from tests.support.emulate.person import Person
from tests.support.emulate.process import emulate
from tests.support.emulate.provision import programs
from tests.support.emulate.relay import Delivery, Relay
from tests.support.emulate.views import Site
from tests.support.github.authentication import app_key
from tests.support.loopback import address_of, listening, serving
from tests.support.repositories import git, make_repository

ROUTES = (accounts, checks, git_http, issues, pulls, comments, threads)
"""Imported for the paths that they answer."""
APP: Mapping[str, Any] = {"id": 4_711, "slug": "agent-fix-test", "name": "agent-fix test"}
INSTALLATION = 8_001
SECRET = "known-to-everybody-who-reads-this-test"
OWNER, WRITER, READER, STRANGER = "ada", "grace", "rob", "mallory"
"""Accounts; the first has every right, the last none."""
RIGHTLESS = "nobody"
"""Emulate takes an unknown token for its first user."""
TIMEOUT = 30.0
T = TypeVar("T")


@dataclass(frozen=True)
class Repository:
    """One repository: its numbers and names, its bare git side, what is to be seen there, and people who act."""

    id: int
    owner: str
    name: str
    path: Path
    site: Site
    memory: Repo
    _people: Callable[[str], Person]

    @property
    def full_name(self) -> str:
        return f"{self.owner}/{self.name}"

    def as_user(self, login: str) -> Person:
        return self._people(login)

    @property
    def head(self) -> str:
        """Where the default branch is."""
        return self.memory.branches()["main"]

    def head_of(self, branch: str) -> str:
        return self.memory.branches()[branch]

    def add_check(self, commit: str, name: str, conclusion: str, *, log: str = "") -> int:
        """A workflow's job: begun, then ended so; `log` is what it wrote."""
        return self.as_user(OWNER).run_check(commit, name, conclusion, lambda made: self._keep_log(made, log))

    def add_status(self, commit: str, context: str, state: str) -> None:
        self.as_user(OWNER).set_status(commit, context, state)

    def _keep_log(self, check: int, log: str) -> None:
        self.memory.checks[check].log = log


class EmulatedGitHub:
    """One GitHub with one App on it; API, site and git are at the same address."""

    app_id: int = APP["id"]
    app_slug: str = APP["slug"]
    installation_id = INSTALLATION
    webhook_secret = SECRET
    bot = f"{APP['slug']}[bot]"

    def __init__(self, address: str, front: Front, emulate: str, place: Path) -> None:
        self.api_url = address
        self.server_url = address
        self.private_key = app_key()[0]
        self._front = front
        self._emulate = emulate
        self._place = place
        self._client = httpx.Client(base_url=address, timeout=60.0)
        self._repositories = itertools.count(1)

    @property
    def environment(self) -> dict[str, str]:
        """What our product is told of it, by the names of its settings."""
        return {
            "AGENT_FIX_APP_ID": str(self.app_id),
            "AGENT_FIX_PRIVATE_KEY": self.private_key,
            "AGENT_FIX_WEBHOOK_SECRET": self.webhook_secret,
            "AGENT_FIX_GITHUB_API_URL": self.api_url,
            "AGENT_FIX_GITHUB_URL": self.server_url,
        }

    @property
    def receiver(self) -> str | None:
        """The whole address of the App's webhook, or None."""
        return self._front.relay.receiver

    @receiver.setter
    def receiver(self, address: str | None) -> None:
        self._front.relay.receiver = address

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """What was sent to the receiver, or tried in vain, in order."""
        return tuple(self._front.relay.deliveries)

    @property
    def calls(self) -> tuple[Call, ...]:
        """Every request that was answered, with its token."""
        return tuple(self._front.memory.calls)

    @property
    def tokens(self) -> tuple[Token, ...]:
        """Every token that is or was, people's included."""
        return tuple(self._front.memory.tokens.values())

    @contextmanager
    def losing_webhooks(self) -> Iterator[None]:
        """Meanwhile no webhook arrives; GitHub records the attempts as failed."""
        self._front.relay.lost = True
        try:
            yield
        finally:
            self._front.relay.lost = False

    def add_repository(
        self, name: str = "", files: Mapping[str, str | bytes] | None = None, *, private: bool = True
    ) -> Repository:
        """With one commit on `main`. It is the owner's; the writer and the reader work on it, the App is installed."""
        name = name or f"sample-{next(self._repositories)}"
        whole = self._ask("POST", "/user/repos", json={"name": name, "private": private, "auto_init": False})
        for login, permission in ((WRITER, "push"), (READER, "pull")):
            self._ask("PUT", f"/repos/{OWNER}/{name}/collaborators/{login}", json={"permission": permission})
        repo = Repo(whole["id"], OWNER, name, _bare(self._place, name))
        self._front.memory.repos[repo.full_name] = repo
        self._first_commit(repo, make_repository(self._place / f"{name}.first", files))
        if repo.id == 1:
            self._introduce_bot(repo)
        site = Site(self._client, f"Bearer {_token(OWNER)}", repo)
        return Repository(repo.id, OWNER, name, repo.path, site, repo, lambda login: self._person(login, repo))

    def wait(self, until: Callable[[], T | None], what: str, *, timeout: float = TIMEOUT) -> T:
        """The first thing that is something, asked again whenever something happens here; AssertionError in the end."""
        end = time.monotonic() + timeout
        memory = self._front.memory
        while True:
            seen = memory.happenings
            if found := until():
                return found
            self._still_relaying()
            assert time.monotonic() < end, f"{what} did not come within {timeout:.0f} seconds"
            with memory.changed:
                memory.changed.wait_for(lambda seen=seen: memory.happenings != seen, 1.0)  # type: ignore[misc]

    def delivered(self, event: str, action: str | None = None, *, since: int = 0) -> Delivery:
        """Wait for a webhook to have been tried, the first of its kind after that many."""

        def look() -> Delivery | None:
            kept = (item for item in self.deliveries[since:] if item.event == event)
            return next((item for item in kept if action is None or item.action == action), None)

        return self.wait(look, f"the webhook {event} {action or ''}")

    def _still_relaying(self) -> None:
        task = self._front.relaying
        if task is not None and task.done() and not task.cancelled():
            raise AssertionError("no webhook is sent any more") from task.exception()

    def _first_commit(self, repo: Repo, work: Path) -> None:
        """By the owner, and pushed like everybody's."""
        commit = git(work, "rev-parse", "HEAD")
        git(repo.path, "fetch", "-q", str(work), commit)
        git(repo.path, "update-ref", "refs/heads/main", commit)
        owner = self._front.memory.tokens[_token(OWNER)]

        async def tell() -> None:
            async with self._front.turn:
                await git_http.moved(self._front, repo, owner, {})

        task = self._front.relaying
        assert task is not None
        asyncio.run_coroutine_threadsafe(tell(), task.get_loop()).result(60)

    def token_of(self, login: str) -> str:
        """A person's own."""
        return _token(login)

    def workflow_token(self, repository: Repository, permissions: Mapping[str, str] = PERMISSIONS) -> str:
        """A token for one repository, as a workflow's job is given one with the permissions that it names."""
        signed = {"authorization": f"Bearer {self._signature()}"}
        body = {"repository_ids": [repository.id], "permissions": dict(permissions)}
        with httpx.Client(base_url=self._emulate, timeout=30.0) as direct:
            made = direct.post(f"/app/installations/{INSTALLATION}/access_tokens", headers=signed, json=body)
        token = str(made.raise_for_status().json()["token"])
        held = Token(token, self._front.memory.bot, dict(permissions), frozenset({repository.id}))
        self._front.memory.tokens[token] = held
        return token

    def _signature(self) -> str:
        claims = {"iss": str(APP["id"]), "iat": int(time.time()) - 60, "exp": int(time.time()) + 300}
        return jwt.encode(claims, self.private_key, algorithm="RS256")

    def _introduce_bot(self, repo: Repo) -> None:
        """The App's account is there from the beginning; emulate makes it with the App's first change."""
        signed = {"authorization": f"Bearer {self._signature()}"}
        with httpx.Client(base_url=self._emulate, timeout=30.0) as direct:
            made = direct.post(f"/app/installations/{INSTALLATION}/access_tokens", headers=signed).raise_for_status()
            bearer = {"authorization": f"Bearer {made.json()['token']}"}
            direct.post(f"{repo.api}/git/blobs", headers=bearer, json={"content": ""}).raise_for_status()

    def _person(self, login: str, repo: Repo) -> Person:
        return Person(self._client, _token(login), login, repo.full_name)

    def _ask(self, method: str, path: str, **request: Any) -> Any:
        headers = {"authorization": f"Bearer {_token(OWNER)}"}
        answer = self._client.request(method, path, headers=headers, **request).raise_for_status()
        return answer.json()

    def close(self) -> None:
        self._client.close()


@contextmanager
def emulated_github(receiver: str | None = None) -> Iterator[EmulatedGitHub]:
    """Started in half a second; skips the test where emulate cannot be had. `receiver` may be told later, too."""
    found = programs()
    people = (OWNER, WRITER, READER, STRANGER)
    memory = Memory(dict(APP), (Token(_token(login), login) for login in people))
    relay = Relay(memory, SECRET, INSTALLATION)
    relay.receiver = receiver
    with tempfile.TemporaryDirectory(prefix="agent-fix-emulate-") as directory, listening() as listener:
        site, place = address_of(listener), Path(directory)
        with emulate(found, seed(site, people), site, place) as address:
            front = Front(memory, relay, address, site, f"Bearer {_token(OWNER)}-itself")
            with serving(front.app, listener, lifespan="on"):
                github = EmulatedGitHub(site, front, address, place)
                try:
                    yield github
                finally:
                    github.close()


def seed(site: str, people: tuple[str, ...]) -> dict[str, Any]:
    """Emulate's accounts, tokens and App; its webhooks go to the front."""
    tokens = {_token(login): {"login": login, "scopes": ["repo"]} for login in people}
    tokens[f"{_token(OWNER)}-itself"] = {"login": OWNER, "scopes": ["repo"]}
    app = {
        "app_id": APP["id"],
        "slug": APP["slug"],
        "name": APP["name"],
        "private_key": app_key()[0],
        "permissions": {**PERMISSIONS, "actions": "write"},  # which only workflows are given
        "events": ["*"],
        "webhook_url": f"{site}/_webhooks",
        "webhook_secret": SECRET,
        "installations": [{"installation_id": INSTALLATION, "account": OWNER, "repository_selection": "all"}],
    }
    users = [{"login": login, "name": f"{login.title()} of the test"} for login in (RIGHTLESS, *people)]
    return {"tokens": tokens, "github": {"users": users, "apps": [app]}}


def _bare(place: Path, name: str) -> Path:
    path = place / f"{name}.git"
    git(place, "init", "-q", "--bare", "--initial-branch=main", "--template=", str(path))
    git(path, "config", "http.receivepack", "true")
    git(path, "config", "uploadpack.allowAnySHA1InWant", "true")
    git(path, "config", "uploadpack.allowFilter", "true")
    return path


def _token(login: str) -> str:
    return f"ghp_{login}"
