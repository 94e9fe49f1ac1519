"""The images of an issue, fetched once for a job whose repository has them described; the worker fetches nothing."""

import asyncio

from app.forge.github.attachments import Attachments
from app.images import Album
from app.job import Job
from app.jobs.roster import Commissioned
from app.markup import image_addresses
from app.reception.books import Books
from app.reception.doors import Readers


class Pictures:
    """What stock does for them. Best effort: a job begins without those that cannot be had, and says so."""

    def __init__(self, books: Books) -> None:
        self._books = books

    async def bring(self, each: Commissioned, readers: Readers) -> None:
        task = each.job.task
        if not each.commission.config.images or task.images or task.images_left_out:
            return
        addresses = await asyncio.to_thread(image_addresses, task.issue.body)
        if addresses:
            album = await Attachments(readers.door).collect(each.commission.place.number, addresses)
            await asyncio.to_thread(self._keep, each.job.id, album)

    def _keep(self, job_id: str, album: Album) -> None:
        """The bytes first: a job that names an image has it."""
        row = self._books.store.get(job_id)  # as it stands now: its fix may have been found since
        if row is not None:
            for content in album.contents:
                self._books.blobs(job_id).put(content)
            self._books.store.replace(with_images(row.job, album))


def with_images(job: Job, album: Album) -> Job:
    told = {"images": tuple(album.images), "images_left_out": album.notes}
    return job.model_copy(update={"task": job.task.model_copy(update=told)})
