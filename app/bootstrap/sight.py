"""A job's eyes: its issue's images, described once by whichever of its models sees."""

from collections.abc import Callable

from app.agent.asks import Asks
from app.job import Job, Journal, Progress
from app.model.base import WorkKind
from app.model.meters import Meters
from app.seeing import Seen, describe


class Sight:
    """Without images nothing is asked, and no step is made."""

    def __init__(self, job: Job, meters: Meters, contents: Callable[[str], bytes]) -> None:
        self._job = job
        self._meters = meters
        self._contents = contents
        self._seen = Seen()

    async def look(self, journal: Journal, progress: Progress) -> None:
        """Before the first prompt; the same again after a crash."""
        if images := self._job.task.images:
            self._seen = await describe(journal, self._seeing, images, self._contents)
        for note in self.notes:
            progress.say("note", note)

    @property
    def shown(self) -> str:
        """As the agent is shown it."""
        return self._seen.text

    @property
    def notes(self) -> tuple[str, ...]:
        """For people: what was described, and what was not."""
        described = len(self._job.task.images)
        what = "1 image" if described == 1 else f"{described} images"
        told = f"{what} of the issue went to a model, whose description the agent was given." if self.shown else ""
        return tuple(filter(None, (told, self._seen.why_not, *self._job.task.images_left_out)))

    def _seeing(self) -> Asks | None:
        """The cheapest first; None where none is known to take images."""
        kinds: tuple[WorkKind, ...] = ("cheap", "answer") if self._job.aim == "ask" else ("cheap", "code", "plan")
        meters = map(self._meters.of, kinds)
        return next((meter for meter in meters if meter.info.vision), None)
