"""A whole server over a GitHub on the loopback: how soon it begins, what each role holds, how soon a label is seen.

`python -m bench.server [--repeat N]`: `agent-fix serve` with its three roles, as people start it.
"""

import argparse
import asyncio
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep

import httpx

from bench.memory import megabytes
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import FakeGitHubSetup, make_fake_github, served
from tests.support.github.webhooks import Hooks
from tests.support.webhook_requests import SECRET

TIMEOUT = 60.0
QUIET = 8.0
"""Seconds between two labels: one installation gets one mutation a second, and each job has several."""
READY = ("receiver ready", "worker ready", "publisher ready")


@contextmanager
def serving(place: Path, github: str) -> Iterator[tuple[subprocess.Popen[str], str, float]]:
    """The supervisor, the server's address, and how many seconds all roles took to begin."""
    ours = {
        "STATE_DIR": str(place / "state"),
        "APP_ID": str(APP_ID),
        "PRIVATE_KEY": app_key()[0],
        "WEBHOOK_SECRET": SECRET,
        "WEB_TOKEN": "a-token-of-the-bench",
        "MODEL": "recorded/none",
        "PORT": "0",
        "GITHUB_API_URL": github,
        "GITHUB_URL": github,
    }
    environment = {"PATH": os.environ["PATH"], "HOME": str(place)}
    environment |= {f"AGENT_FIX_{name}": value for name, value in ours.items()}
    began, log = perf_counter(), place / "log"
    with log.open("w") as sink:
        words = [sys.executable, "-I", "-m", "app", "serve"]
        process = subprocess.Popen(words, env=environment, cwd=place, stdout=subprocess.PIPE, stderr=sink, text=True)
    try:
        address = next(line.split()[1].removesuffix("/webhook") for line in process.stdout or () if "/webhook" in line)
        while not all(word in log.read_text() for word in READY):
            if process.poll() is not None or perf_counter() - began > TIMEOUT:
                raise SystemExit(log.read_text())
            sleep(0.02)
        yield process, address, perf_counter() - began
    finally:
        process.terminate()
        process.wait(TIMEOUT)
        if process.stdout is not None:
            process.stdout.close()


def roles(supervisor: int) -> dict[str, int]:
    found = {"supervisor": supervisor}
    for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split():
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
        found[words[words.index("--role") + 1]] = int(pid)
    return found


def memory_alone(pid: int) -> float:
    """Resident, of this process without those below it."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1_024


async def seconds_to_eyes(ground: FakeGitHubSetup, address: str) -> float:
    """From the label to the reaction's arrival at GitHub, the webhook's way included."""
    issue = ground.world.open_issue(ground.repo, ground.owner, "Another one", "It breaks.")
    async with httpx.AsyncClient(base_url=address, timeout=TIMEOUT) as client:
        hooks, seen = Hooks(ground.world, client, SECRET), len(ground.repo.reactions)
        began = perf_counter()
        await hooks.labeled(ground.repo, ground.installation, ground.owner, issue, "agent-fix")
        while len(ground.repo.reactions) == seen:
            if perf_counter() - began > TIMEOUT:
                raise SystemExit("the label was never seen")
            await asyncio.sleep(0.005)
        took = perf_counter() - began
        await asyncio.sleep(QUIET)
        return took


def measure(labels: int) -> dict[str, list[float]]:
    figures: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as root:
        place = Path(root)
        (place / "github").mkdir()
        ground = make_fake_github(place / "github")
        with served(ground.github) as github, serving(place, github) as (process, address, took):
            figures["all roles ready, s"] = [took]
            sleep(5.0)
            for role, pid in roles(process.pid).items():
                figures[f"{role} at rest, resident MB"] = [memory_alone(pid)]
            figures["all of it, proportional MB"] = [megabytes(process.pid)[1]]
            figures["label to eyes, s"] = [asyncio.run(seconds_to_eyes(ground, address)) for _ in range(labels)]
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="whole servers (%(default)s)")
    parser.add_argument("--labels", type=int, default=5, metavar="N", help="labels for each (%(default)s)")
    chosen = parser.parse_args()
    figures: dict[str, list[float]] = {}
    for _ in range(chosen.repeat):
        for name, samples in measure(chosen.labels).items():
            figures.setdefault(name, []).extend(samples)
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}\n")
    for name, samples in figures.items():
        print(f"{name:<34}{median(samples):>8.2f}   ({min(samples):.2f} to {max(samples):.2f}, {len(samples)} times)")


if __name__ == "__main__":
    main()
