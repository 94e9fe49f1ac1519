"""Describes an issue's images once, with the first of a job's models that can."""

from collections.abc import Callable

from app.agent.model_port import ModelPort
from app.core.job import Job, Journal, Progress
from app.core.model_names import WorkKind
from app.llm.job_models import JobModels
from app.pipeline.image_descriptions import ImageDescription, describe


class ImageDescriber:
    """Without images, no model is called and no step is made."""

    def __init__(self, job: Job, job_models: JobModels, contents: Callable[[str], bytes]) -> None:
        self._job = job
        self._job_models = job_models
        self._contents = contents
        self._description = ImageDescription()

    async def describe(self, journal: Journal, progress: Progress) -> None:
        """Call before the first prompt; repeatable after a crash."""
        if images := self._job.task.images:
            self._description = await describe(journal, self._vision_model, images, self._contents)
        for note in self.notes:
            progress.report("note", note)

    @property
    def shown(self) -> str:
        """The text for the agent."""
        return self._description.text

    @property
    def notes(self) -> tuple[str, ...]:
        """For people: what was described, and what was not."""
        described = len(self._job.task.images)
        what = "1 image" if described == 1 else f"{described} images"
        summary = f"{what} of the issue went to a model, and the agent was given its description." if self.shown else ""
        return tuple(filter(None, (summary, self._description.why_not, *self._job.task.images_left_out)))

    def _vision_model(self) -> ModelPort | None:
        """The cheapest first; None if no model is known to accept images."""
        kinds: tuple[WorkKind, ...] = ("cheap", "answer") if self._job.aim == "ask" else ("cheap", "code", "plan")
        job_models = map(self._job_models.of, kinds)
        return next((budgeted_model for budgeted_model in job_models if budgeted_model.info.vision), None)
