"""A Dockerfile as its instructions, stage by stage: enough to hold it to rules and to do its steps by hand."""

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DockerInstruction:
    name: str
    text: str

    @property
    def words(self) -> list[str]:
        """The exec form of a command."""
        found = json.loads(self.text)
        assert isinstance(found, list)
        return found

    @property
    def copied(self) -> tuple[list[str], str]:
        """What COPY takes, and where to."""
        *sources, target = [word for word in shlex.split(self.text) if not word.startswith("--")]
        return sources, target

    @property
    def stage(self) -> str:
        """From which stage COPY takes; empty for the build's context."""
        found = re.search(r"--from=(\S+)", self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class DockerStage:
    image: str
    name: str
    instructions: tuple[DockerInstruction, ...]

    def all(self, name: str) -> list[DockerInstruction]:
        return [each for each in self.instructions if each.name == name]

    def last(self, name: str) -> DockerInstruction:
        return self.all(name)[-1]

    def variables(self) -> dict[str, str]:
        return dict(pair for each in self.all("ENV") for pair in _pairs(each.text))


def read_stages(path: Path) -> list[DockerStage]:
    lines = [line for line in path.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    stages: list[DockerStage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, text = line.partition(" ")
        if name == "FROM":
            image, *rest = text.split()
            stages.append(DockerStage(image, rest[-1] if rest else "", ()))
        else:
            last = stages.pop()
            stages.append(
                DockerStage(last.image, last.name, (*last.instructions, DockerInstruction(name, text.strip())))
            )
    return stages


def _pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (word.partition("=") for word in shlex.split(text))]
