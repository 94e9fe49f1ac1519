"""The Action from the start of its job to the first request to a model: `python -m bench.action [--repeat N]`.

Under `act`, against an emulated GitHub on the loopback. Cold: the environment is made from the locked requirements, by
the network, and put into an archive as `actions/cache` does it. Cached: it is unpacked from there. Not in it: checkout,
and the ways to GitHub and to its cache.
"""

import argparse
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from bench.endpoint import Stopwatch
from bench.table import Row, render
from tests.e2e.test_action import labelled, said
from tests.support.act_runner import ActResult, ActWorkflow
from tests.support.emulate.github import EmulatedGitHub, Repository, emulated_github
from tests.support.openai_endpoint import ReceivedRequest, Reply, error
from tests.support.sample_project import PROJECT

AIMS = {"cold": 10.0, "cached": 3.0}
STEPS = ("Build the environment", "Restore the environment", "Receive", "Keep the environment")
NOTHING_ASKED = "I can see that too."


class Refusing(Stopwatch):
    """Notes when the first request arrives, and has no more to do with it: so that the workflow ends by itself."""

    def take(self, received: ReceivedRequest) -> Reply:
        super().take(received)
        return error(401, "This is a bench.")


class Timed(ActWorkflow):
    """A workflow whose environment is made and kept in earnest, in one place for all of them."""

    def __init__(self, place: Path, repository: str, inputs: Mapping[str, str], archive: Path) -> None:
        self._archive = archive
        super().__init__(place, repository, inputs)

    def stand_in(self, name: str) -> str:
        """Packed and unpacked by what `actions/cache` uses."""
        archive, python = self._archive, sys.executable
        return {
            "actions/setup-python": f"date +%s.%N > {self.place}/began\n"
            f'echo "python-path={python}" >> "$GITHUB_OUTPUT"',
            "actions/cache/restore": f'rm -rf "$AT"\n[ -e {archive} ] || exit 0\n'
            'mkdir -p "$AT"\n'
            f'tar --posix -C "$AT" --use-compress-program unzstd -xf {archive}\n'
            'echo cache-hit=true >> "$GITHUB_OUTPUT"',
            "actions/cache/save": f'tar --posix -C "$AT" --use-compress-program zstdmt -cf {archive} .',
            "actions/upload-artifact": "true",
        }[name]

    @property
    def began(self) -> float:
        return float((self.place / "began").read_text())


class Site:
    """One repository on the emulated GitHub, and where the environments go."""

    def __init__(self, github: EmulatedGitHub, place: Path) -> None:
        self._github = github
        self._repository: Repository = github.add_repository("", PROJECT)
        self._place = place
        self._numbers = count(1)
        self.archive = place / "environment.tar.zst"

    def to_first_request(self) -> dict[str, float]:
        """Seconds of a labelled issue's job until a model is asked, and of the steps on the way."""
        _, event = labelled(self._github, self._repository)
        asked = len(self._github.calls)
        with Refusing() as model:
            workflow, acted = self._act("issues", event, model.environment())
            at = model.wait(lambda: True)
        if at is None:
            raise SystemExit(acted.log)
        arrived = time.time() - (time.monotonic() - at)
        return {"": arrived - workflow.began, "requests": len(self._github.calls) - asked, **durations(acted.log)}

    def to_nothing(self) -> dict[str, float]:
        """Seconds of a job whose comment asks for nothing."""
        ada, since = self._repository.as_user("ada"), len(self._github.deliveries)
        ada.comment(ada.open_issue("half loses a cent", "It does."), NOTHING_ASKED)
        _, acted = self._act("issue_comment", said(self._github, since), {})
        if acted.code:
            raise SystemExit(acted.log)
        return durations(acted.log)

    def _act(self, event: str, payload: Mapping[str, Any], keys: Mapping[str, str]) -> tuple[Timed, ActResult]:
        place = self._place / str(next(self._numbers))
        given = {"model": "openai/bench", "model-keys": "${{ secrets.MODEL_KEYS }}"}
        workflow = Timed(place, self._repository.full_name, given, self.archive)
        addresses = {"GITHUB_API_URL": self._github.api_url, "GITHUB_SERVER_URL": self._github.server_url}
        hidden = {"GITHUB_TOKEN": self._github.workflow_token(self._repository)}
        hidden["MODEL_KEYS"] = "".join(f"{name}={value}\n" for name, value in keys.items())
        acted = workflow.end(workflow.begin(event, payload, addresses, hidden))
        began = workflow.place / "began"
        if not began.exists():
            raise SystemExit(acted.log)
        return workflow, acted


def durations(log: str) -> dict[str, float]:
    """What act says that each of the Action's steps took."""
    found = re.findall(r"Success - Main ([^\[\n]+?) \[(?:([0-9]+)m)?([0-9.]+)(m?s)\]", log)
    return {name: 60 * int(m or 0) + float(number) / (1_000 if unit == "ms" else 1) for name, m, number, unit in found}


@contextmanager
def site() -> Iterator[Site]:
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as root, emulated_github() as github:
        yield Site(github, Path(root))


def measure(repeat: int) -> list[Row]:
    taken: dict[str, list[dict[str, float]]] = {"cold": [], "cached": [], "nothing": []}
    with site() as at:
        for _ in range(repeat):  # in turns, so that the load of the moment falls on all alike
            at.archive.unlink(missing_ok=True)
            taken["cold"].append(at.to_first_request())
            taken["cached"].append(at.to_first_request())
            taken["nothing"].append(at.to_nothing())
        size = at.archive.stat().st_size / 1e6
    rows = []
    for kind, aim in AIMS.items():
        rows.append(Row(f"job start to first model request, {kind}", [one[""] for one in taken[kind]], "s", aim=aim))
        for step in STEPS:
            samples = [one[step] for one in taken[kind] if step in one]
            rows += [Row(f"  {step}", samples, "s")] if samples else []
    rows.append(Row("requests to GitHub of such a job", [one["requests"] for one in taken["cached"]], ""))
    rows.append(Row("a comment that asks nothing, Receive", [one["Receive"] for one in taken["nothing"]], "s", aim=3))
    rows.append(Row("the environment's archive", [size], "MB"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, metavar="N", help="how often each is measured (%(default)s)")
    chosen = parser.parse_args()
    if shutil.which("zstdmt") is None:
        raise SystemExit("zstd is not installed, which GitHub's runners pack their caches with.")
    before = os.getloadavg()[0]
    rows = measure(chosen.repeat)
    load = f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after"
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, {load}, {chosen.repeat} times each\n")
    print(render(rows))


if __name__ == "__main__":
    main()
