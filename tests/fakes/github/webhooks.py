"""Signed webhooks: sent when a test says so, recorded as GitHub records them, or lost."""

import hashlib
import hmac
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.fakes.github.views import comment_view, issue_view, pull_view, repo_view, user_view
from tests.fakes.github.world import Comment, Delivery, Installation, Issue, Repo, User, World


def signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


class Hooks:
    """Sends to one receiver at `client`'s base address. While `down`, GitHub's attempts fail and are recorded so."""

    def __init__(self, world: World, client: httpx.AsyncClient, secret: str) -> None:
        self._world = world
        self._client = client
        self._secret = secret
        self._down = False

    @contextmanager
    def down(self) -> Iterator[None]:
        self._down = True
        yield
        self._down = False

    async def send(
        self, event: str, action: str, repo: Repo, installation: Installation, sender: User, **content: Any
    ) -> Delivery:
        payload = {
            "action": action,
            "repository": repo_view(repo),
            "sender": user_view(sender),
            "installation": {"id": installation.id, "node_id": ""},
            **content,
        }
        delivery = Delivery(self._world.number(), str(uuid.uuid4()), event, action, payload, self._world.now, status=0)
        self._world.deliveries.append(delivery)
        await self.attempt(delivery)
        return delivery

    async def labeled(self, repo: Repo, installation: Installation, sender: User, issue: Issue, label: str) -> Delivery:
        self._world.label(issue, sender, label)
        content = {"issue": issue_view(repo, issue), "label": {"name": label}}
        return await self.send("issues", "labeled", repo, installation, sender, **content)

    async def commented(
        self, repo: Repo, installation: Installation, sender: User, issue: Issue, comment: Comment
    ) -> Delivery:
        content = {"issue": issue_view(repo, issue), "comment": comment_view(repo, issue, comment)}
        return await self.send("issue_comment", "created", repo, installation, sender, **content)

    async def pull_closed(self, repo: Repo, installation: Installation, sender: User, issue: Issue) -> Delivery:
        content = {"number": issue.number, "pull_request": pull_view(repo, issue)}
        return await self.send("pull_request", "closed", repo, installation, sender, **content)

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
