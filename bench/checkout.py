"""The repository that is worked on: a release of sqlparse as a git checkout, and the environment its tests run in."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.installs import PROJECT, REQUIREMENTS, Environment

_CONFIGURATION = """\
setup: python -m pip install -q --require-hashes -r .bench-requirements.txt
test: python -m pytest -q
"""
_INSTRUCTIONS = ("AGENTS.md", "CLAUDE.md", "CONTRIBUTING.md")
"""Left out: we show them to the model and the others do not, so they would be weighed on one side only."""
_WHO = ("-c", "user.name=bench", "-c", "user.email=bench@example.com", "-c", "init.defaultBranch=main")


@dataclass(frozen=True, slots=True)
class Project:
    """The pristine tree, and Python with pytest for harnesses that use the machine's own."""

    source: Path
    tools: Environment

    @classmethod
    def fetch(cls) -> "Project":
        """Raises NotInstalledError."""
        tools = Environment("project").install()
        return cls(tools.source(PROJECT), tools)

    def checkout(self, place: Path) -> Path:
        """A new repository with one commit. Its configuration is for ours; to the others it is one more file."""
        shutil.copytree(self.source, place, ignore=shutil.ignore_patterns(*_INSTRUCTIONS))
        (place / ".github").mkdir(exist_ok=True)
        (place / ".github" / "agent-fix.yml").write_text(_CONFIGURATION)
        shutil.copyfile(REQUIREMENTS / "project.txt", place / ".bench-requirements.txt")
        for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "Release")):
            subprocess.run(("git", "-C", str(place), *_WHO, *command), check=True)
        return place

    @property
    def environment(self) -> Mapping[str, str]:
        """For harnesses without a sandbox: this project's Python first on PATH, nobody's keys and settings."""
        path = f"{self.tools.programs}{os.pathsep}{os.environ['PATH']}"
        keep = ("LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE")
        return {name: os.environ[name] for name in keep if name in os.environ} | {"PATH": path}
