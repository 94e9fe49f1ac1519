"""Merges the base into a branch, without a model if possible; the model only resolves conflicts."""

import asyncio

from app.core.errors import RepositoryError
from app.core.job import Job
from app.core.patch import Patch
from app.core.result import JobResult
from app.github.branches import BranchesApi
from app.github.http_client import NotFoundOnGitHub
from app.jobs.context import JobContext
from app.jobs.job_queries import JobWithContext
from app.jobs.queue import JobClaim
from app.publish.effects import CommitRecipe, PushCommits
from app.publish.pull_request_text import SKIP_CI
from app.repo.git_store import GitStore
from app.repo.merge import SideNames, merge
from app.triggers.github_clients import RepositoryClients
from app.triggers.stores import Stores

UNVERIFIED = "No test or check was run."


class BaseMerge:
    """Prepares jobs whose commit needs no worker, or whose base is a merge that must be made first."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def prepare(self, each: JobWithContext, branches: BranchesApi, readers: RepositoryClients) -> None:
        """Make the merge or the commit. Idempotent: the same job makes the same commit."""
        job, job_context, store = each.job, each.job_context, branches.store
        if job_context.aim == "ci":
            recipe = self._recipe(job, job_context, Patch(base=job.task.base, changes=()), "Let CI start\n")
            await asyncio.to_thread(
                self._hand_over, each, store, recipe, "CI may start: agent-fix pushed an empty commit."
            )
            return
        ours, base_head = job_context.parents
        try:
            base = await readers.pulls.merge_base(base_head, ours)
        except NotFoundOnGitHub:
            raise RepositoryError("The two branches have no common commit, so they cannot be merged.") from None
        await branches.fetch(base)
        await asyncio.to_thread(self._merge, each, store, base)

    def _merge(self, each: JobWithContext, store: GitStore, base: str) -> None:
        job, job_context = each.job, each.job_context
        ours, base_head = job_context.parents
        message = _merge_message(job, job_context)
        names = SideNames(ours=job.branch, theirs=job_context.base_ref)
        how = {"identity": job_context.author, "date": job.created_at, "message": message, "names": names}
        merged = merge(store, base=base, ours=ours, theirs=base_head, **how)  # type: ignore[arg-type]  # as they are called
        task = job.task.model_copy(update={"base": merged.commit})
        paths = merged.paths
        self._stores.store.replace(job.model_copy(update={"task": task, "conflicts": paths}))
        if paths:
            self._stores.store.add_progress(job.id, "note", f"Conflicts in {', '.join(paths[:10])}.")
            self._stores.job_queries.mark_ready(job.id)
            return
        recipe = self._recipe(job, job_context, Patch(base=merged.commit, changes=()), message)
        note = f"{job_context.base_ref} was merged into the branch without conflicts. {UNVERIFIED}"
        self._hand_over(each, store, recipe, note)

    def _recipe(self, job: Job, job_context: JobContext, patch: Patch, message: str) -> CommitRecipe:
        return CommitRecipe(
            patch=self._stores.blobs(job.id).put(patch.model_dump_json().encode()),
            message=message,
            author=job_context.author,
            date=job.created_at,
            parents=job_context.parents,
        )

    def _hand_over(self, each: JobWithContext, store: GitStore, recipe: CommitRecipe, note: str) -> None:
        """Pass the job straight to the publisher, which checks the permission again as for any other commit."""
        job, job_context, epoch = each.job, each.job_context, each.row.epoch
        patch = Patch.model_validate_json(self._stores.blobs(job.id).get(recipe.patch))
        how = {"message": recipe.message, "author": recipe.author, "date": recipe.date}
        commit = store.commit(patch, parents=recipe.parents, **how)  # type: ignore[arg-type]  # as they are called
        effect = PushCommits(branch=job.branch, commit=commit, expected=job_context.expected, recipe=recipe)
        self._stores.outbox.add(job.id, epoch, job_context.issue_ref, effect)
        result = JobResult(
            exit_status="pr_updated", summary=note, branch=job.branch, commit=commit, patch=recipe.patch, notes=(note,)
        )
        self._stores.queue.hand_over(JobClaim(job.id, epoch, "", resumed=False), result.model_dump(mode="json"))


def _merge_message(job: Job, job_context: JobContext) -> str:
    parts = [f"Merge branch '{job_context.base_ref}' into {job.branch}"]
    if job_context.config.ci == "manual":
        parts.append(SKIP_CI)
    return "\n\n".join(parts) + "\n"
