"""Fetches the base commits of new jobs and checks them before money is spent."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from app.core.errors import AgentFixError, RepositoryError
from app.core.failpoints import failpoint
from app.core.images import ImageCollection
from app.core.job import Job, JobResult, JobState
from app.core.patch import Patch
from app.core.text import image_addresses
from app.github.base import NeedsHumanAction, NoAccess, RateLimited
from app.github.branches import BranchesApi
from app.github.reader import AttachmentFetcher, RepositoryReader
from app.github.refusals import NotFoundOnGitHub
from app.jobs.queue import JobClaim
from app.jobs.store import JobWithContext
from app.publish.effects import CommitRecipe, PushCommits
from app.publish.pull_request_text import SKIP_CI, merge_subject
from app.repo.git_command import GitError
from app.repo.git_store import GitStore
from app.repo.inspection import mentioned_fix
from app.repo.merge import SideNames, merge
from app.triggers.github_clients import GitHubClients, Mirror
from app.triggers.stores import Stores

UNVERIFIED = "No test or check was run."
REPOSITORIES_AT_ONCE = 2
SHORTEST, LONGEST = timedelta(seconds=2), timedelta(minutes=5)
GIVE_UP_AFTER = timedelta(hours=6)
"""After so long without the commit from GitHub, the job ends."""

logger = logging.getLogger(__name__)


class BaseCommitFetcher:
    """Makes admitted jobs ready, or ends them with the reason why they can never start."""

    def __init__(self, github_clients: GitHubClients, stores: Stores, mirror: Mirror) -> None:
        self._github_clients = github_clients
        self._stores = stores
        self._mirror = mirror
        self._due: dict[str, datetime] = {}
        self._attempts: dict[str, int] = defaultdict(int)
        self._slots = asyncio.Semaphore(REPOSITORIES_AT_ONCE)

    async def fetch_due(self) -> int:
        """Fetch the base commits that are due; returns the number of jobs."""
        now = self._stores.clock()
        waiting = await asyncio.to_thread(self._stores.job_queries.without_base_commit)
        due = [each for each in waiting if self._due.get(each.job.id, now) <= now]
        by_repository: dict[int, list[JobWithContext]] = defaultdict(list)
        for each in due:
            by_repository[each.job_context.issue_ref.repository].append(each)
        await asyncio.gather(*(self._in_order(found) for found in by_repository.values()))
        return len(due)

    async def _in_order(self, waiting: Iterable[JobWithContext]) -> None:
        async with self._slots:
            for each in waiting:
                (failure,) = await asyncio.gather(self._make_ready(each), return_exceptions=True)
                if isinstance(failure, Exception):
                    await asyncio.to_thread(self._failed, each, failure)
                elif failure is not None:
                    raise failure
                else:
                    self._forget(each)

    async def _make_ready(self, each: JobWithContext) -> None:
        job, job_context, issue_ref = each.job, each.job_context, each.job_context.issue_ref
        reader = await self._github_clients.for_issue(issue_ref)
        branches = BranchesApi(reader.api, self._mirror(issue_ref.repository), job_context.author.email)
        on_pull = job.task.origin is not None and job.task.origin.is_pull_request
        shown_at = f"refs/pull/{issue_ref.number}/head" if on_pull else ""
        shown = job.change or job.task.base
        for commit in dict.fromkeys(filter(None, (job.task.base, job.change, *job_context.parents))):
            await branches.fetch(commit, ref=shown_at if commit == shown else "")
        if job_context.aim == "ci":
            patch, note = Patch(base=job.task.base, changes=()), "CI may start: agent-fix pushed an empty commit."
            await asyncio.to_thread(self._hand_over, each, branches.store, patch, "Let CI start\n", note)
            return
        if job_context.aim == "conflicts":
            await self._merge_base_branch(each, branches, reader)
            return
        failpoint("base.fetched")
        await branches.fetch_history(job.task.base)
        await self._find_fix(each, branches)
        await self._fetch_images(each, reader)
        await asyncio.to_thread(self._stores.job_queries.mark_ready, job.id)

    async def _merge_base_branch(self, each: JobWithContext, branches: BranchesApi, reader: RepositoryReader) -> None:
        """Make the merge that the job is about. Idempotent: the same job makes the same commit."""
        ours, base_head = each.job_context.parents
        try:
            base = await reader.merge_base(base_head, ours)
        except NotFoundOnGitHub:
            raise RepositoryError("The two branches have no common commit, so they cannot be merged.") from None
        await branches.fetch(base)
        await asyncio.to_thread(self._merge, each, branches.store, base)

    def _merge(self, each: JobWithContext, store: GitStore, base: str) -> None:
        """Hand the job over if there are no conflicts, else make it ready for a worker."""
        job, job_context, job_store = each.job, each.job_context, self._stores.job_store()
        ours, base_head = job_context.parents
        skip_ci = f"\n\n{SKIP_CI}" if job_context.config.ci == "manual" else ""
        message = f"{merge_subject(job_context.base_ref, job.branch)}{skip_ci}\n"
        merged = merge(
            store,
            base=base,
            ours=ours,
            theirs=base_head,
            identity=job_context.author,
            date=job.created_at,
            message=message,
            names=SideNames(ours=job.branch, theirs=job_context.base_ref),
        )
        task = job.task.model_copy(update={"base": merged.commit})
        job_store.replace(job.model_copy(update={"task": task, "conflicts": merged.paths}))
        if merged.paths:
            job_store.add_progress(job.id, "note", f"Conflicts in {', '.join(merged.paths[:10])}.")
            self._stores.job_queries.mark_ready(job.id)
            return
        note = f"{job_context.base_ref} was merged into the branch without conflicts. {UNVERIFIED}"
        self._hand_over(each, store, Patch(base=merged.commit, changes=()), message, note)

    def _hand_over(self, each: JobWithContext, store: GitStore, patch: Patch, message: str, note: str) -> None:
        """Pass the job straight to the publisher, which checks the permission again as for any other commit."""
        job, job_context, epoch = each.job, each.job_context, each.row.epoch
        recipe = CommitRecipe(
            patch=self._stores.blobs(job.id).put(patch.model_dump_json().encode()),
            message=message,
            author=job_context.author,
            date=job.created_at,
            parents=job_context.parents,
        )
        commit = recipe.commit(store, patch)
        effect = PushCommits(branch=job.branch, commit=commit, expected=job_context.expected, recipe=recipe)
        self._stores.outbox.add(job.id, epoch, job_context.issue_ref, effect)
        result = JobResult(
            exit_status="pr_updated", summary=note, branch=job.branch, commit=commit, patch=recipe.patch, notes=(note,)
        )
        self._stores.queue.hand_over(JobClaim(job.id, epoch, "", resumed=False), result.model_dump(mode="json"))

    async def _find_fix(self, each: JobWithContext, branches: BranchesApi) -> None:
        """For a job that writes tests, record the fix that people mention, once its files are here; the history is.

        Best effort: without the fix, the tests are tested, not proved.
        """
        job, job_store = each.job, self._stores.job_store()
        if job.kind != "tests" or job.task.fixed_by:
            return
        text = "\n".join((job.task.request, job.task.issue.title, job.task.issue.body))
        fix = await asyncio.to_thread(mentioned_fix, branches.store.history.path, job.task.base, text)
        if not fix:
            return
        try:
            await branches.fetch(fix)
            for before in (await asyncio.to_thread(branches.store.parents, fix))[:1]:
                await branches.fetch(before)
        except (NeedsHumanAction, NoAccess) as error:
            note = f"The fix {fix[:10]}: {error.message}"
            await asyncio.to_thread(job_store.add_progress, job.id, "note", note)
            return
        task = job.task.model_copy(update={"fixed_by": fix})
        await asyncio.to_thread(job_store.replace, job.model_copy(update={"task": task}))

    async def _fetch_images(self, each: JobWithContext, reader: RepositoryReader) -> None:
        """Best effort: a job starts without the images that are unavailable, and says so."""
        task = each.job.task
        if task.images or task.images_left_out:
            return
        addresses = await asyncio.to_thread(image_addresses, task.issue.body)
        if addresses:
            number = each.job_context.issue_ref.number
            wanted = each.job_context.config.images
            collection = ImageCollection.unwanted(addresses)
            if wanted:
                collection = await AttachmentFetcher(reader.api).collect(number, addresses)
            await asyncio.to_thread(self._keep_images, each.job.id, collection)

    def _keep_images(self, job_id: str, collection: ImageCollection) -> None:
        """Store the bytes before the job refers to them."""
        row = self._stores.job_store().get(job_id)  # read again: its fix may have been found since
        if row is not None:
            for content in collection.contents:
                self._stores.blobs(job_id).put(content)
            self._stores.job_store().replace(with_images(row.job, collection))

    def _failed(self, each: JobWithContext, failure: Exception) -> None:
        job, now = each.job.id, self._stores.clock()
        match failure:
            case NoAccess():
                self._end(each, "no_access", failure)
            case NeedsHumanAction() | RepositoryError() | GitError():
                self._end(each, "error", failure)
            case RateLimited():
                self._due[job] = failure.until
                self._report_waiting(each, failure)
            case _ if now - each.job.created_at > GIVE_UP_AFTER:
                self._end(each, "error", failure)
            case _:
                self._attempts[job] += 1
                self._due[job] = now + min(SHORTEST * 2 ** min(self._attempts[job], 10), LONGEST)
                self._report_waiting(each, failure)

    def _end(self, each: JobWithContext, state: JobState, failure: Exception) -> None:
        reason = str(failure) or type(failure).__name__
        if isinstance(failure, AgentFixError):
            reason = f"{failure.message} {failure.hint}".strip()
        self._stores.queue.end(each.job.id, state, reason)
        self._forget(each)

    def _report_waiting(self, each: JobWithContext, failure: Exception) -> None:
        reason = "The repository's files cannot be fetched at the moment; agent-fix will try again."
        if each.row.reason != reason:
            self._stores.job_store().enter(each.job.id, each.row.state, reason)
        if isinstance(failure, AgentFixError):
            logger.warning("fetching the base of job %s: %s", each.job.id, failure.message)
        else:
            logger.error("fetching the base of job %s failed", each.job.id, exc_info=failure)

    def _forget(self, each: JobWithContext) -> None:
        self._due.pop(each.job.id, None)
        self._attempts.pop(each.job.id, None)


def with_images(job: Job, collection: ImageCollection) -> Job:
    update = {"images": tuple(collection.images), "images_left_out": collection.notes}
    return job.model_copy(update={"task": job.task.model_copy(update=update)})
