"""Repositories: their facts, collaborators, files, branches and commits, read from the real git side."""

import base64
from typing import Any

from githubkit_schemas.latest import models
from starlette.responses import JSONResponse, Response

from tests.support.github.authentication import AccessDenied
from tests.support.github.server import Answer, Ask, rest
from tests.support.github.shapes import shaped
from tests.support.github.views import commit_view, permission_view, ref_view, repo_view, rights_view
from tests.support.repositories import git


@rest("GET", "")
def get_repo(ask: Ask) -> Answer:
    """The headers tell of a classic token's scopes; of any other they say nothing."""
    view, scopes = repo_view(ask.repo, rights=rights_view(ask.repo, ask.token)), ask.token.scopes
    return (200, view) if scopes is None else JSONResponse(view, headers={"x-oauth-scopes": scopes})


@rest("GET", "/collaborators/{login}/permission")
def get_permission(ask: Ask) -> Answer:
    user = next((user for user in ask.world.users.values() if user.login == ask.params["login"]), None)
    if user is None:
        raise AccessDenied(404, f"{ask.params['login']} is not a user")
    return 200, permission_view(ask.repo, user)


@rest("GET", "/contents/{path:path}")
def get_content(ask: Ask) -> Answer:
    ref, path = ask.query.get("ref", "main"), ask.params["path"]
    if not ask.repo.branches:
        raise AccessDenied(404, "This repository is empty.")
    listed = git(ask.repo.path, "ls-tree", ref, "--", path)
    if not listed:
        raise AccessDenied(404, "Not Found")
    if listed.split()[1] == "tree":
        inside = git(ask.repo.path, "ls-tree", ref, "--", f"{path}/")
        return 200, [_directory_entry(line) for line in inside.splitlines()]
    blob = listed.split()[2]
    content = git(ask.repo.path, "cat-file", "blob", blob).encode("utf-8", "surrogateescape")
    whole = content + b"\n" * (int(git(ask.repo.path, "cat-file", "-s", blob)) - len(content))
    if "raw" in ask.accept:
        return Response(whole, media_type="application/vnd.github.raw+json; charset=utf-8")
    encoded = base64.b64encode(whole).decode()
    name = path.rpartition("/")[2]
    return 200, shaped(models.ContentFile, path=path, name=name, sha=blob, size=len(whole), content=encoded)


def _directory_entry(line: str) -> dict[str, Any]:
    about, _, path = line.partition("\t")
    _, kind, ident = about.split()
    kinds = {"blob": "file", "tree": "dir", "commit": "submodule"}
    name = path.rpartition("/")[2]
    return shaped(models.ContentDirectoryItems, type=kinds[kind], path=path, name=name, sha=ident, size=0)


@rest("GET", "/git/ref/heads/{branch:path}")
def get_ref(ask: Ask) -> Answer:
    if not ask.repo.branches:
        raise AccessDenied(409, "Git Repository is empty.")
    commit = ask.repo.branches.get(ask.params["branch"])
    if commit is None:
        raise AccessDenied(404, "Not Found")
    return 200, ref_view(ask.params["branch"], commit)


@rest("GET", "/git/matching-refs/heads/{prefix:path}")
def matching_refs(ask: Ask) -> Answer:
    found = {name: tip for name, tip in ask.repo.branches.items() if name.startswith(ask.params["prefix"])}
    return 200, [ref_view(name, tip) for name, tip in found.items()]


@rest("GET", "/commits/{sha}")
def get_commit(ask: Ask) -> Answer:
    return 200, commit_view(ask.repo, ask.params["sha"])
