"""Merges the base branch into a verified commit, because GitHub refuses a branch that lacks a changed workflow.

The verified commit keeps its id and becomes the merge's first parent. The merge is a function of the two commits and
the recipe, so every retry builds the same one. Nothing is executed on the merge, and the pull request says so.
"""

from typing import Final

from app.core.tree import TreeEntry
from app.publish.policy_rules import PublishRefused, PublishRequest
from app.publish.pull_request_text import SKIP_CI
from app.repo.git_store import GitStore
from app.repo.merge import SideNames, merge

WORKFLOWS: Final = ".github/workflows/"


def merge_base_branch(store: GitStore, request: PublishRequest, common: str) -> str:
    """Return the id of the merge of the request's commit with `onto`; `common` is their merge base. Blocking.

    All three commits must be in the store. Raises PublishRefused on a conflict, or if it changes a workflow.
    """
    effect, base_ref = request.effect, request.where.job_context.base_ref
    store.keep(effect.commit)
    merged = merge(
        store,
        base=common,
        ours=effect.commit,
        theirs=effect.onto,
        identity=effect.recipe.author,
        date=effect.recipe.date,
        message=_message(request),
        names=SideNames(ours=effect.branch, theirs=base_ref),
    )
    if merged.conflicts:
        raise PublishRefused(
            f"A workflow changed on {base_ref} meanwhile. GitHub refuses a branch without that change, and {base_ref} "
            f"conflicts with this branch in {', '.join(merged.paths[:5])}.",
            hint="`/agent retry` on the issue starts again from there; `/agent rebase` on a pull request resolves it.",
        )
    if _workflows(store, merged.commit) != _workflows(store, effect.onto):
        raise PublishRefused(
            f"GitHub refuses the branch {effect.branch}: it changes a workflow.",
            hint="The App has no permission to change workflows and does not ask for it; a person must push this.",
        )
    return merged.commit


def merge_note(base_ref: str, onto: str, verified: str) -> str:
    """The sentence about the merge; GitHub turns the commit ids into links."""
    return (
        f"{base_ref} was merged into this branch after verification: a workflow changed on {base_ref}, and "
        f"GitHub refuses a branch without that change. The verified commit is {verified}. It was merged with {onto} "
        "without conflicts. Nothing was run on the merge."
    )


def _message(request: PublishRequest) -> str:
    subject = f"Merge branch '{request.where.job_context.base_ref}' into {request.effect.branch}"
    why = "A workflow changed there after this branch began, and GitHub refuses a branch without that change."
    skip = (SKIP_CI,) if SKIP_CI in request.effect.recipe.message else ()
    return "\n\n".join((subject, why, *skip)) + "\n"


def _workflows(store: GitStore, commit: str) -> dict[str, TreeEntry]:
    return {path: entry for path, entry in store.tree(commit).entries().items() if path.startswith(WORKFLOWS)}
