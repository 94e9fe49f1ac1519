"""A process that works on one small job, to be killed and started again: `engine_child DIR FAILPOINT [JOURNAL]`.

The job is named like its directory; its journal is kept there, or in the directory JOURNAL beside those of other jobs.
A file `version` in the directory names the version of the workflow that this process knows.
"""

import asyncio
import os
import sys
import threading
from pathlib import Path

from app.core import failpoints
from app.core.errors import AgentFixError, ExitCode, SandboxError, SetupError
from app.core.job import Journal, WaitingForUser
from app.core.record import Record
from app.jobs.engine import WORKFLOW_VERSION, DurableEngine


class Count(Record):
    """A step's result: how often its work was begun, over all processes."""

    begun: int


class SmallJob:
    """Each step leaves a mark in the directory whenever its work is begun."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    async def solve(self, _job_id: str, journal: Journal) -> Count:
        async def step(name: str) -> Count:
            return await journal.step(name, Count, lambda: self.begin(name))

        planning, baseline = asyncio.ensure_future(step("plan")), asyncio.ensure_future(step("baseline"))
        await planning
        journal.on_resume(self.restore)
        while (self.directory / "hold").exists():  # noqa: ASYNC110  # another process removes it
            await asyncio.sleep(0.01)
        for turn in range(3):
            await step(f"turn.{turn}")
        await baseline
        try:
            await journal.step("refused", Count, self.refuse)
        except SetupError as error:
            (self.directory / "hint").write_text(error.hint)
        if (self.directory / "park").exists():
            raise WaitingForUser("paused", "waits", code=ExitCode.LIMIT_REACHED)
        await journal.step("lost", Count, self.lose)
        return await step("publish")

    async def restore(self) -> None:
        self.mark("restored")

    async def begin(self, name: str) -> Count:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a job is worked on in the loop it was given to, resumed or not")
        if (self.directory / "nothing-works").exists():
            raise SandboxError("gone")
        marks = self.mark(name)
        await asyncio.sleep(0.01)
        while name == "baseline" and not (self.directory / "turn.1").exists():  # noqa: ASYNC110  # another step makes it
            await asyncio.sleep(0.01)  # the turns do not wait for it
        return Count(begun=marks)

    async def refuse(self) -> Count:
        self.mark("refused")
        raise SetupError("did not install", hint="kept")

    async def lose(self) -> Count:
        if (self.directory / "no-sandbox").exists():
            raise SandboxError("gone")
        return Count(begun=1)

    def mark(self, name: str) -> int:
        with (self.directory / name).open("a") as marks:
            marks.write("x")
        return (self.directory / name).stat().st_size


async def main(directory: Path, journal: Path) -> None:
    begun = (directory / "begun").exists()
    (directory / "begun").touch()
    kept = directory / "version"
    version = kept.read_text() if kept.exists() else WORKFLOW_VERSION
    engine = DurableEngine(journal, Count, SmallJob(directory).solve, scope=directory.name, version=version)
    engine.launch()
    try:
        result = await engine.carry_out(directory.name, resumed=begun)
    except AgentFixError as error:
        print(type(error).__name__, error.message if error.final else "", flush=True)
        await asyncio.sleep(0.2)  # what went on beside it comes to its end too
        os._exit(7)
    print(result.model_dump_json(), flush=True)
    await asyncio.sleep(0.2)  # the workflow itself ends just after its result is known
    os._exit(0)


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[-1] if len(sys.argv) > 3 else sys.argv[1])))
