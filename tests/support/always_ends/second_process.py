"""The next process of a job whose first one died: goes on from what was stored, at the same endpoint."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.always_ends.case_runner import ACCEPTED, Case, CaseRunner
from tests.support.always_ends.endpoint import Play, always
from tests.support.memory_journal import MemoryJournal
from tests.support.openai_endpoint import error


@dataclass(frozen=True, slots=True)
class OtherProcess:
    """An endpoint that another process serves."""

    url: str

    def plays(self, play: Play) -> None:
        """It has been told."""


def store(case_runner: CaseRunner, url: str, path: Path) -> None:
    blobs = {digest: content.decode("latin-1") for digest, content in case_runner.blobs.contents.items()}
    kept = {"url": url, "root": str(case_runner.local.root), "journal": case_runner.journal.kept, "blobs": blobs}
    path.write_text(json.dumps(kept))


async def resume(kept: dict[str, Any]) -> str:
    case = Case("the second process", always(error(599, "not played here")), "submitted", 0, reviews=(ACCEPTED,))
    case_runner = CaseRunner(case, OtherProcess(kept["url"]), Path(kept["root"]))
    case_runner.journal = MemoryJournal(kept=kept["journal"], is_resumed=True)
    case_runner.blobs.contents.update({digest: content.encode("latin-1") for digest, content in kept["blobs"].items()})
    return (await case_runner.work()).status


if __name__ == "__main__":
    print(asyncio.run(resume(json.loads(Path(sys.argv[1]).read_text()))))
