"""Minimal webhook payloads, and the signed requests that carry them."""

import hashlib
import hmac
import json
from typing import Any

BOT, APP = 9_000, 77
INSTALLATION, REPOSITORY = 500, 600
OCTOCAT: dict[str, Any] = {"id": 1, "login": "octocat", "type": "User"}
STRANGER: dict[str, Any] = {"id": 2, "login": "stranger", "type": "User"}
OURSELVES: dict[str, Any] = {"id": BOT, "login": "agent-fix[bot]", "type": "Bot"}
DEPENDABOT: dict[str, Any] = {"id": 3, "login": "dependabot[bot]", "type": "Bot"}
SHA, OTHER_SHA = "a" * 40, "b" * 40
AT = "2026-01-02T03:04:05Z"
SECRET = "it is a secret to everybody"


def repository(**changes: Any) -> dict[str, Any]:
    owner = {"id": 50, "login": "octo-org", "type": "Organization"}
    made = {"id": REPOSITORY, "name": "hello", "owner": owner, "default_branch": "main", "private": False}
    return {**made, "archived": False, **changes}


def issue(**changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"number": 7, "title": "It breaks", "body": "Badly.", "user": STRANGER, "labels": []}
    return {**made, "state": "open", "locked": False, **changes}


def pull_request(*, head_repository: int | None = REPOSITORY, ref: str = "topic", **changes: Any) -> dict[str, Any]:
    repo = None if head_repository is None else {"id": head_repository}
    return issue(head={"ref": ref, "sha": SHA, "repo": repo}, base={"ref": "main", "sha": OTHER_SHA}, **changes)


def payload(action: str | None = None, sender: dict[str, Any] | None = OCTOCAT, **parts: Any) -> dict[str, Any]:
    made = {"sender": sender, "repository": repository(), "installation": {"id": INSTALLATION}}
    return {**made, **({"action": action} if action else {}), **parts}


def label_added(label: str = "agent-fix", **parts: Any) -> dict[str, Any]:
    return payload("labeled", **{"issue": issue(), "label": {"name": label}, **parts})


def comment(body: str | None, sender: dict[str, Any] = OCTOCAT, **parts: Any) -> dict[str, Any]:
    said = {"id": 40, "body": body, "user": sender, "created_at": AT}
    return payload("created", sender, **{"issue": issue(), "comment": said, **parts})


def comment_on_pull_request(body: str, sender: dict[str, Any] = OCTOCAT) -> dict[str, Any]:
    return comment(body, sender, issue=issue(pull_request={"url": "…"}))


def review_comment(body: str, sender: dict[str, Any] = OCTOCAT, **changes: Any) -> dict[str, Any]:
    made = {"id": 41, "body": body, "user": sender, "created_at": AT, "path": "a.py", "diff_hunk": "@@ -1 +1 @@"}
    said = {**made, "line": 9, "start_line": 7, "side": "RIGHT", **changes}
    return payload("created", sender, pull_request=pull_request(), comment=said)


def review(body: str | None, sender: dict[str, Any] = OCTOCAT, state: str = "CHANGES_REQUESTED") -> dict[str, Any]:
    said = {"id": 42, "body": body, "user": sender, "submitted_at": AT, "state": state}
    return payload("submitted", sender, pull_request=pull_request(), review=said)


def checks(kind: str = "check_suite", conclusion: str = "failure", **changes: Any) -> dict[str, Any]:
    made = {"id": 43, "head_sha": SHA, "head_branch": "topic", "conclusion": conclusion, "app": {"id": 15368}}
    return payload("completed", OURSELVES, **{kind: {**made, "pull_requests": [{"number": 7}], **changes}})


def installation(action: str, **parts: Any) -> dict[str, Any]:
    return {"action": action, "sender": OCTOCAT, "installation": {"id": INSTALLATION}, **parts}


def push(ref: str = "refs/heads/main") -> dict[str, Any]:
    return payload(None, ref=ref, before=SHA, after=OTHER_SHA)


def encode(made: dict[str, Any]) -> bytes:
    return json.dumps(made).encode()


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def headers(body: bytes, event: str = "issues", delivery: str = "d-1", **changes: str | None) -> dict[str, str]:
    """Of a delivery as the forge sends it; None takes a header away. Names with _ for -."""
    made: dict[str, str | None] = {
        "content-type": "application/json",
        "x-github-event": event,
        "x-github-delivery": delivery,
        "x-hub-signature-256": sign(body),
    }
    made |= {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in made.items() if value is not None}
