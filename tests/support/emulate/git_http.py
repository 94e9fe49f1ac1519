"""Git over HTTP beside emulate: who may fetch and push, and what was pushed told to emulate, object by object."""

import asyncio
import base64
import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
from starlette.responses import Response

from tests.support.emulate.front import Answer, Ask, Front, answers
from tests.support.emulate.memory import Pull, Repo, Token
from tests.support.github.authentication import AccessDenied
from tests.support.loopback import git_over_http
from tests.support.repositories import ENVIRONMENT, git

NOBODY = "0" * 40
_AT_ONCE = 8


@answers("GET", "/{owner}/{name}.git/{rest:path}")
async def fetch(ask: Ask) -> Answer:
    return await _served(ask)


@answers("POST", "/{owner}/{name}.git/{rest:path}")
async def push(ask: Ask) -> Answer:
    return await _served(ask)


async def _served(ask: Ask) -> Answer:
    rest = ask.params["rest"]
    writes = "receive-pack" in rest or "receive-pack" in ask.request.url.query
    try:
        repo, token = await _let_in(ask, "write" if writes else "read")
    except AccessDenied as refusal:
        challenge = {"www-authenticate": 'Basic realm="GitHub"'} if refusal.status == 401 else {}
        return Response(str(refusal), refusal.status, challenge)
    before = repo.branches()
    response = await git_over_http(ask.request, repo.path, rest)
    if ask.request.method == "POST" and writes:
        await moved(ask.front, repo, token, before)
    return response


async def _let_in(ask: Ask, access: str) -> tuple[Repo, Token]:
    """Basic, with the token for a password: the App's with its permissions, a person's with the person's role."""
    scheme, _, encoded = ask.authorization.partition(" ")
    password = base64.b64decode(encoded).decode().partition(":")[2] if scheme.lower() == "basic" else ""
    token = ask.front.memory.tokens.get(password)
    if token is None or not token.live:
        raise AccessDenied(401, "Invalid username or token.")
    repo = ask.front.memory.repos.get(f"{ask.params['owner']}/{ask.params['name']}")
    if repo is None or not token.opens(repo.id):
        raise AccessDenied(404, "Repository not found.")
    if not token.allows("contents", access):
        raise AccessDenied(403, "Write access to repository not granted.")
    if token.permissions is None and access == "write":
        await _may_push(ask.front, repo, token)
    return repo, token


async def _may_push(front: Front, repo: Repo, token: Token) -> None:
    try:
        role = (await front.look(f"{repo.api}/collaborators/{token.login}/permission"))["permission"]
    except AccessDenied:
        role = "none"
    if role not in {"admin", "maintain", "push"}:
        raise AccessDenied(403, f"Permission to {repo.full_name}.git denied to {token.login}.")


async def moved(front: Front, repo: Repo, token: Token, before: dict[str, str]) -> None:
    """Tell emulate, and whoever listens, which branches are elsewhere now, as the one who moved them."""
    after = repo.branches()
    for branch in sorted(before.keys() | after.keys()):
        old, new = before.get(branch), after.get(branch)
        if old != new:
            await _replay(front, repo, token, branch, old=old, new=new)
            for pull in repo.open_pulls_of(branch):
                await _follow(front, repo, token, pull, new)


async def _replay(front: Front, repo: Repo, token: Token, branch: str, *, old: str | None, new: str | None) -> None:
    asked = _EmulateRequests(front.upstream, f"Bearer {token.text}", repo)
    ref = f"{repo.api}/git/refs/heads/{quote(branch)}"
    if new is None:
        await asked.json("DELETE", ref)
    else:
        await asked.bring(new)
        if old is not None:  # emulate tells of this push itself
            await asked.json("PATCH", ref, {"sha": new, "force": True})
            return
        await asked.json("POST", f"{repo.api}/git/refs", {"ref": f"refs/heads/{branch}", "sha": new})
    ends = {"before": old or NOBODY, "after": new or NOBODY}
    created, deleted = old is None, new is None
    whole = {"ref": f"refs/heads/{branch}", **ends, "created": created, "deleted": deleted, "forced": False}
    await front.announce("push", repo, token.login, **whole)


async def _follow(front: Front, repo: Repo, token: Token, pull: Pull, head: str | None) -> None:
    """An open pull request's head is where its branch is; without a branch it is closed."""
    if head is None:
        asked = _EmulateRequests(front.upstream, front.inner, repo)
        await asked.json("PATCH", f"{repo.api}/pulls/{pull.number}", {"state": "closed"})
        pull.open = False
        return
    ends = {"before": pull.head, "after": head}
    pull.head = head
    git(repo.path, "update-ref", f"refs/pull/{pull.number}/head", head)
    view = await front.look(f"{repo.api}/pulls/{pull.number}")
    await front.announce(
        "pull_request", repo, token.login, action="synchronize", number=pull.number, pull_request=view, **ends
    )


class _EmulateRequests:
    """Emulate's git data API, as one who may write."""

    def __init__(self, upstream: Any, authorization: str, repo: Repo) -> None:
        self._upstream = upstream
        self._authorization = authorization
        self._repo = repo

    async def json(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        answer: httpx.Response = await self._upstream.ask(method, path, self._authorization, json=body)
        assert answer.is_success, f"emulate does not take what git took: {method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    async def bring(self, tip: str) -> None:
        """Every commit below `tip` that emulate lacks, parents first, each under its own id."""
        known = self._repo.commits
        for commit in git(self._repo.path, "rev-list", "--reverse", "--topo-order", tip, "--not", *known).split():
            await self._commit(commit)

    async def _commit(self, commit: str) -> None:
        head, _, message = git(self._repo.path, "cat-file", "commit", commit).partition("\n\n")
        lines = [line.partition(" ") for line in head.splitlines()]
        fields = {name: value for name, _, value in lines}
        body = {
            "tree": await self._tree(commit),
            "message": f"{message}\n",
            "parents": [value for name, _, value in lines if name == "parent"],
            "author": _signature(fields["author"]),
            "committer": _signature(fields["committer"]),
        }
        made = await self.json("POST", f"{self._repo.api}/git/commits", body)
        assert made["sha"] == commit, f"emulate cannot hold {commit}: it holds no signature, encoding or other header"
        self._repo.commits.add(commit)

    async def _tree(self, commit: str) -> str:
        listed = git(self._repo.path, "ls-tree", "-r", "-z", commit).split("\0")
        entries = [(*line.partition("\t")[0].split(), line.partition("\t")[2]) for line in listed if line]
        blobs = {sha for _, kind, sha, _ in entries if kind == "blob"} - self._repo.blobs
        turns = asyncio.Semaphore(_AT_ONCE)
        await asyncio.gather(*(self._blob(sha, turns) for sha in blobs))
        flat = [{"mode": mode, "type": kind, "sha": sha, "path": path} for mode, kind, sha, path in entries]
        sha: str = (await self.json("POST", f"{self._repo.api}/git/trees", {"tree": flat}))["sha"]
        return sha

    async def _blob(self, sha: str, turns: asyncio.Semaphore) -> None:
        async with turns:
            content = await asyncio.to_thread(_raw, self._repo.path, sha)
            body = {"content": base64.b64encode(content).decode(), "encoding": "base64"}
            made = await self.json("POST", f"{self._repo.api}/git/blobs", body)
            assert made["sha"] == sha
            self._repo.blobs.add(sha)


def _raw(repository: Path, sha: str) -> bytes:
    command = ["git", "-c", "safe.directory=*", "-C", str(repository), "cat-file", "blob", sha]
    return subprocess.run(command, env=dict(ENVIRONMENT), capture_output=True, check=True).stdout


def _signature(line: str) -> dict[str, str]:
    """`Name <address> seconds zone`, with the moment as ISO 8601 in that zone."""
    person, seconds, zone = line.rsplit(" ", 2)
    name, _, address = person.partition(" <")
    minutes = int(zone[0] + "1") * (int(zone[1:3]) * 60 + int(zone[3:5]))
    moment = datetime.fromtimestamp(int(seconds), timezone(timedelta(minutes=minutes)))
    return {"name": name, "email": address.removesuffix(">"), "date": moment.isoformat()}


def merge_commit(repository: Path, base: str, head: str, message: str) -> str | None:
    """The merge of two commits, which no branch holds yet; None where they conflict."""
    merged = ("merge-tree", "--write-tree", "--no-messages", "--name-only", base, head)
    tree, *conflicts = git(repository, *merged, check=False).splitlines() or ["", ""]
    return None if conflicts else git(repository, "commit-tree", tree, "-p", base, "-p", head, "-m", message)
