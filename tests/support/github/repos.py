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


@rest("POST", "/git/blobs")
def create_blob(ask: Ask) -> Answer:
    content = base64.b64decode(ask.body["content"])
    return 201, shaped(models.ShortBlob, sha=git(ask.repo.path, "hash-object", "-w", "--stdin", stdin=content))


@rest("POST", "/git/trees")
def create_tree(ask: Ask) -> Answer:
    """On a base tree; an entry has the text of a file, the id of a blob that is here, or none to delete it."""
    index = {"GIT_INDEX_FILE": str(ask.repo.path / f"index-{ask.world.number()}")}
    git(ask.repo.path, "read-tree", ask.body["base_tree"], env=index)
    for entry in ask.body["tree"]:
        oid = entry.get("sha")
        if "content" in entry:
            oid = git(ask.repo.path, "hash-object", "-w", "--stdin", stdin=entry["content"].encode())
        elif oid is not None and git(ask.repo.path, "cat-file", "-t", oid, check=False) != "blob":
            raise AccessDenied(422, "tree.sha is not a valid blob")
        line = f"{entry['mode'] if oid else 0} {oid or '0' * 40}\t{entry['path']}\0"
        git(ask.repo.path, "update-index", "-z", "--index-info", stdin=line.encode(), env=index)
    return 201, shaped(models.GitTree, sha=git(ask.repo.path, "write-tree", env=index))


@rest("POST", "/git/commits")
def create_commit(ask: Ask) -> Answer:
    """Signed only for an App or a workflow's own token, and only without author and committer (docs, "Signature
    verification for bots")."""
    body, user = ask.body, ask.token.user or ask.world.bot
    signs = ask.repo.signs and user.type == "Bot" and not {"author", "committer", "signature"} & body.keys()
    fields = {"NAME": user.login, "EMAIL": f"{user.id}+{user.login}@{ask.world.noreply}"}
    env = {f"GIT_{role}_{name}": value for role in ("AUTHOR", "COMMITTER") for name, value in fields.items()}
    options = ("-c", "gpg.format=ssh", "-c", f"user.signingKey={ask.repo.web_flow_key}") if signs else ()
    parents = [word for parent in body["parents"] for word in ("-p", parent)]
    words = (*options, "commit-tree", *(("-S",) if signs else ()), body["tree"], *parents)
    commit = git(ask.repo.path, *words, stdin=body["message"].encode(), env=env)
    reason = "valid" if signs else "unsigned"
    verification = shaped(models.GitCommitPropVerification, verified=signs, reason=reason)
    return 201, shaped(models.GitCommit, sha=commit, message=body["message"], verification=verification)


@rest("GET", "/commits/{sha}")
def get_commit(ask: Ask) -> Answer:
    return 200, commit_view(ask.repo, ask.params["sha"])
