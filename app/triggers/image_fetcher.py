"""Fetches an issue's images once, for jobs whose repository enables descriptions; workers fetch nothing."""

import asyncio

from app.core.images import ImageCollection
from app.core.job import Job
from app.core.markup import image_addresses
from app.github.attachments import AttachmentFetcher
from app.jobs.job_queries import JobWithContext
from app.triggers.github_clients import RepositoryClients
from app.triggers.stores import Stores


class ImageFetcher:
    """Fetches images. Best effort: a job starts without those that are unavailable, and says so."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores

    async def fetch(self, each: JobWithContext, readers: RepositoryClients) -> None:
        task = each.job.task
        if not each.job_context.config.images or task.images or task.images_left_out:
            return
        addresses = await asyncio.to_thread(image_addresses, task.issue.body)
        if addresses:
            image_collection = await AttachmentFetcher(readers.api).collect(
                each.job_context.issue_ref.number, addresses
            )
            await asyncio.to_thread(self._keep, each.job.id, image_collection)

    def _keep(self, job_id: str, image_collection: ImageCollection) -> None:
        """Store the bytes before the job refers to them."""
        row = self._stores.store.get(job_id)  # read again: its fix may have been found since
        if row is not None:
            for content in image_collection.contents:
                self._stores.blobs(job_id).put(content)
            self._stores.store.replace(with_images(row.job, image_collection))


def with_images(job: Job, image_collection: ImageCollection) -> Job:
    update = {"images": tuple(image_collection.images), "images_left_out": image_collection.notes}
    return job.model_copy(update={"task": job.task.model_copy(update=update)})
