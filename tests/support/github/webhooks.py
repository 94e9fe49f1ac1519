"""Signed webhooks: sent when a test says so, recorded as GitHub records them, or lost."""

import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.github.views import (
    check_view,
    comment_view,
    inline_view,
    issue_view,
    pull_view,
    repo_view,
    review_view,
    user_view,
)
from tests.support.github.world import Check, Comment, Delivery, Installation, Issue, Repo, Review, User, World


def _kind(issue: Issue) -> str:
    return "pull_request" if issue.pull else "issues"


def signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Hooks:
    """Sends to one receiver at `client`'s base address. While `down`, GitHub's attempts fail and are recorded so."""

    def __init__(self, world: World, client: httpx.AsyncClient, secret: str) -> None:
        self._world = world
        self._client = client
        self._secret = secret
        self._down = False
        self.held = False
        """While held, webhooks are made and not sent: a test sends them in the order that it likes."""

    @contextmanager
    def down(self) -> Iterator[None]:
        self._down = True
        yield
        self._down = False

    async def send(
        self, event: str, action: str | None, repo: Repo, installation: Installation, sender: User, **content: Any
    ) -> Delivery:
        payload = {
            **({"action": action} if action else {}),
            "repository": repo_view(repo),
            "sender": user_view(sender),
            "installation": {"id": installation.id, "node_id": ""},
            **content,
        }
        return await self._record(event, action, payload)

    async def _record(self, event: str, action: str | None, payload: dict[str, Any]) -> Delivery:
        delivery = Delivery(self._world.number(), str(uuid.uuid4()), event, action, payload, self._world.now, status=0)
        self._world.deliveries.append(delivery)
        if not self.held:
            await self.attempt(delivery)
        return delivery

    async def labeled(self, repo: Repo, installation: Installation, sender: User, issue: Issue, label: str) -> Delivery:
        self._world.label(issue, sender, label)
        content = {**self._subject(repo, issue), "label": {"name": label}}
        return await self.send(_kind(issue), "labeled", repo, installation, sender, **content)

    async def assigned(
        self, repo: Repo, installation: Installation, sender: User, issue: Issue, assignee: User
    ) -> Delivery:
        self._world.assign(issue, sender, assignee)
        content = {**self._subject(repo, issue), "assignee": user_view(assignee)}
        return await self.send(_kind(issue), "assigned", repo, installation, sender, **content)

    async def unlabeled(
        self, repo: Repo, installation: Installation, sender: User, issue: Issue, label: str
    ) -> Delivery:
        self._world.label(issue, sender, label, off=True)
        content = {**self._subject(repo, issue), "label": {"name": label}}
        return await self.send(_kind(issue), "unlabeled", repo, installation, sender, **content)

    async def turned(self, repo: Repo, installation: Installation, sender: User, issue: Issue, state: str) -> Delivery:
        """Closed or reopened."""
        self._world.turn(issue, sender, state)
        action = "closed" if state == "closed" else "reopened"
        return await self.send(_kind(issue), action, repo, installation, sender, **self._subject(repo, issue))

    async def edited(self, repo: Repo, installation: Installation, sender: User, issue: Issue, body: str) -> Delivery:
        self._world.edit(issue, body)
        return await self.send(_kind(issue), "edited", repo, installation, sender, **self._subject(repo, issue))

    async def reviewed(self, repo: Repo, installation: Installation, issue: Issue, review: Review) -> Delivery:
        content = {**self._subject(repo, issue), "review": review_view(review)}
        return await self.send("pull_request_review", "submitted", repo, installation, review.user, **content)

    async def review_commented(
        self, repo: Repo, installation: Installation, issue: Issue, comment: Comment
    ) -> Delivery:
        content = {**self._subject(repo, issue), "comment": inline_view(repo, issue.number, comment)}
        name = "pull_request_review_comment"
        return await self.send(name, "created", repo, installation, comment.user, **content)

    async def check_ended(
        self, repo: Repo, installation: Installation, check: Check, kind: str = "check_run"
    ) -> Delivery:
        view = {**check_view(check), "pull_requests": []}
        view |= {"check_suite": {"head_branch": self._branch(repo, check)}, "head_branch": self._branch(repo, check)}
        return await self.send(kind, "completed", repo, installation, self._world.actions, **{kind: view})

    async def pushed(self, repo: Repo, installation: Installation, sender: User, branch: str) -> Delivery:
        after = repo.branches[branch]
        content = {"ref": f"refs/heads/{branch}", "before": "0" * 40, "after": after}
        return await self.send("push", None, repo, installation, sender, **content)

    async def installation_changed(self, installation: Installation, action: str, sender: User) -> Delivery:
        payload = {"action": action, "sender": user_view(sender), "installation": {"id": installation.id}}
        return await self._record("installation", action, payload)

    async def repositories_removed(self, installation: Installation, repos: list[Repo], sender: User) -> Delivery:
        removed = [{"id": repo.id, "name": repo.name} for repo in repos]
        payload: dict[str, Any] = {
            "action": "removed",
            "sender": user_view(sender),
            "installation": {"id": installation.id},
        }
        payload |= {"repositories_removed": removed, "repositories_added": []}
        return await self._record("installation_repositories", "removed", payload)

    def _subject(self, repo: Repo, issue: Issue) -> dict[str, Any]:
        return {"pull_request": pull_view(repo, issue)} if issue.pull else {"issue": issue_view(repo, issue)}

    def _branch(self, repo: Repo, check: Check) -> str:
        return next((name for name, commit in repo.branches.items() if commit == check.head_sha), "")

    async def commented(
        self, repo: Repo, installation: Installation, sender: User, issue: Issue, comment: Comment
    ) -> Delivery:
        content = {"issue": issue_view(repo, issue), "comment": comment_view(repo, issue, comment)}
        return await self.send("issue_comment", "created", repo, installation, sender, **content)

    async def synchronized(self, repo: Repo, installation: Installation, sender: User, issue: Issue) -> Delivery:
        """Somebody pushed to the branch of a pull request."""
        content = {"number": issue.number, "pull_request": pull_view(repo, issue)}
        return await self.send("pull_request", "synchronize", repo, installation, sender, **content)

    async def attempt(self, delivery: Delivery) -> None:
        """Send one delivery, or one that was asked for again; GitHub never tries a second time by itself."""
        body = json.dumps(delivery.payload).encode()
        headers = {
            "content-type": "application/json",
            "user-agent": "GitHub-Hookshot/fake",
            "x-github-delivery": delivery.guid,
            "x-github-event": delivery.event,
            "x-hub-signature-256": signature(self._secret, body),
        }
        if self._down:
            delivery.status = 502
            return
        answer = await self._client.post("/webhook", content=body, headers=headers)
        delivery.status = answer.status_code

    async def attempt_asked(self) -> int:
        """Send what was asked for again by the deliveries API; returns how many that were."""
        waiting = [delivery for delivery in self._world.deliveries if delivery.redelivery and delivery.status == 0]
        for delivery in waiting:
            await self.attempt(delivery)
        return len(waiting)
