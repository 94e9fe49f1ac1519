"""What lessons are drawn from at a job's end, and how a sentence becomes a draft with a citation."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.agent.base import Submission
from app.core.job import Job
from app.core.lessons import HARNESS, Citation, LessonDraft, LessonKind
from app.core.patch import Patch
from app.core.tree import Tree
from app.core.verification import BaselineResult, VerifiedPatch
from app.pipeline.lessons import admission
from app.pipeline.lessons.citations import find_citation

TESTED_VERDICTS: Final = frozenset({"proved", "tested"})
_EXIT_CODE = re.compile(r"exit (\d{1,3})\b")
_OUTPUT_TAIL = 400


class ExecutedCommand(NamedTuple):
    """A command of the agent, its exit code, and the end of its output."""

    command: str
    exit_code: int
    output: str = ""


@dataclass(frozen=True, slots=True)
class JobExperience:
    """What lessons are drawn from. `verified` are the facts of the submissions in order; the last one was accepted."""

    job: Job
    tree: Tree
    known: BaselineResult
    verified: Sequence[VerifiedPatch]
    submission: Submission | None = None
    commands: Sequence[ExecutedCommand] = ()

    @property
    def is_verified(self) -> bool:
        return bool(self.verified) and self.verified[-1].verification.verdict in TESTED_VERDICTS

    @property
    def after(self) -> dict[str, bytes | None]:
        """Changed files as the last patch leaves them."""
        return contents(self.verified[-1].patch) if self.verified else {}


def draft_with_citation(
    experience: JobExperience,
    text: str,
    kind: LessonKind,
    paths: Iterable[str],
    *,
    topic: str = "",
    author: str = HARNESS,
    min_shared: int = 1,
) -> LessonDraft | None:
    """None if the text cannot be a lesson, or if no line of these files shares `min_shared` words with it."""
    try:
        fact = admission.check_learned(text)
    except admission.LessonRefusedError:
        return None
    citation = _first_citation(experience.tree, paths, fact, experience.after, min_shared)
    if citation is None:
        return None
    return LessonDraft(text=fact, kind=kind, topic=topic, citation=citation, author=author)


def _first_citation(
    tree: Tree, paths: Iterable[str], text: str, after: Mapping[str, bytes | None], min_shared: int
) -> Citation | None:
    found = (find_citation(tree, path, text, after, least=min_shared) for path in paths)
    return next((citation for citation in found if citation is not None), None)


def contents(patch: Patch) -> dict[str, bytes | None]:
    return {change.path: change.content for change in patch.changes}


def commands_in(trajectory: Iterable[str]) -> Iterator[ExecutedCommand]:
    """The commands that the agent ran, from the lines of its trajectory (`app.agent.native`)."""
    for record in map(json.loads, trajectory):
        for action in record["actions"]:
            observation = str(action.get("observation", ""))
            match = _EXIT_CODE.match(observation)
            command = action.get("arguments", {}).get("command")
            if action.get("tool") == "bash" and match and isinstance(command, str):
                yield ExecutedCommand(command, int(match[1]), observation[-_OUTPUT_TAIL:])
