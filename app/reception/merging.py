"""Branches are brought up to their base without a model where that can be; a model only resolves what conflicts."""

import asyncio

from app.commission import Commission
from app.errors import RepositoryError
from app.forge.github.branches import Branches
from app.forge.github.line import Missing
from app.gitmerge import Names, merge
from app.gitstore import GitStore
from app.job import Job
from app.jobs.queue import Claim
from app.jobs.roster import Commissioned
from app.patch import Patch
from app.publish.comments import SKIP_CI
from app.publish.intent import PushCommits, Recipe
from app.reception.books import Books
from app.reception.doors import Readers
from app.result import Result

UNVERIFIED = "Nothing was executed: no test, no check."


class Merging:
    """What stock does for jobs whose commit the publisher makes by itself, or whose base has to be made first."""

    def __init__(self, books: Books) -> None:
        self._books = books

    async def prepare(self, each: Commissioned, branches: Branches, readers: Readers) -> None:
        """Everything of it can be done again: the same job makes the same commit."""
        job, commission, store = each.job, each.commission, branches.store
        if commission.aim == "ci":
            recipe = self._recipe(job, commission, Patch(base=job.task.base, changes=()), "Let CI start\n")
            await asyncio.to_thread(self._hand_over, each, store, recipe, "CI may start: an empty commit was pushed.")
            return
        ours, theirs = commission.parents
        try:
            base = await readers.pulls.merge_base(theirs, ours)
        except Missing:
            raise RepositoryError("The two branches have no commit in common, so they cannot be merged.") from None
        await branches.bring(base)
        await asyncio.to_thread(self._merge, each, store, base)

    def _merge(self, each: Commissioned, store: GitStore, base: str) -> None:
        job, commission = each.job, each.commission
        ours, theirs = commission.parents
        message = _merge_message(job, commission)
        names = Names(ours=job.branch, theirs=commission.base_ref)
        how = {"identity": commission.author, "date": job.created_at, "message": message, "names": names}
        merged = merge(store, base=base, ours=ours, theirs=theirs, **how)  # type: ignore[arg-type]  # as they are called
        task = job.task.model_copy(update={"base": merged.commit})
        paths = merged.paths
        self._books.store.replace(job.model_copy(update={"task": task, "conflicts": paths}))
        if paths:
            self._books.store.say(job.id, "note", f"Conflicts in {', '.join(paths[:10])}.")
            self._books.roster.mark_ready(job.id)
            return
        recipe = self._recipe(job, commission, Patch(base=merged.commit, changes=()), message)
        told = f"{commission.base_ref} was merged into the branch; there was no conflict. {UNVERIFIED}"
        self._hand_over(each, store, recipe, told)

    def _recipe(self, job: Job, commission: Commission, patch: Patch, message: str) -> Recipe:
        return Recipe(
            patch=self._books.blobs(job.id).put(patch.model_dump_json().encode()),
            message=message,
            author=commission.author,
            date=job.created_at,
            parents=commission.parents,
        )

    def _hand_over(self, each: Commissioned, store: GitStore, recipe: Recipe, told: str) -> None:
        """Straight to the publisher, who asks for the permission again as for any other commit."""
        job, commission, epoch = each.job, each.commission, each.row.epoch
        patch = Patch.model_validate_json(self._books.blobs(job.id).get(recipe.patch))
        how = {"message": recipe.message, "author": recipe.author, "date": recipe.date}
        commit = store.commit(patch, parents=recipe.parents, **how)  # type: ignore[arg-type]  # as they are called
        wish = PushCommits(branch=job.branch, commit=commit, expected=commission.expected, recipe=recipe)
        self._books.intents.want(job.id, epoch, commission.place, wish)
        result = Result(
            exit_status="pr_updated", summary=told, branch=job.branch, commit=commit, patch=recipe.patch, notes=(told,)
        )
        self._books.queue.hand_over(Claim(job.id, epoch, "", resumed=False), result.model_dump(mode="json"))


def _merge_message(job: Job, commission: Commission) -> str:
    parts = [f"Merge branch '{commission.base_ref}' into {job.branch}"]
    if commission.config.ci == "manual":
        parts.append(SKIP_CI)
    return "\n\n".join(parts) + "\n"
