"""The forge's own published webhook payloads: fetched once by npm's ordinary client, kept outside the repository."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PACKAGE = "@octokit/webhooks-examples@7.6.1"
SHA256 = "89e6cb1c6345d32e3dd775617fa54effbdc26c859e514898d7728e95e9738280"
COUNT = 329


class Published(NamedTuple):
    """One example: the value of the event header, and the payload."""

    event: str
    payload: dict[str, Any]


@cache
def published() -> tuple[Published, ...]:
    """All of them; the calling test is skipped, in plain words, where npm or its registry cannot be had."""
    archive = _cache_directory() / "webhooks-examples-7.6.1.tgz"
    if not archive.exists():
        _fetch(archive)
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256, f"{archive} is not what was published"
    with tarfile.open(archive) as tar:
        index = tar.extractfile("package/api.github.com/index.json")
        assert index is not None
        groups = json.load(index)
    return tuple(Published(group["name"], payload) for group in groups for payload in group["examples"])


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or tempfile.gettempdir()
    directory = Path(base) / f"agent-fix-tests-{os.getuid()}"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def _fetch(archive: Path) -> None:
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip(f"NOT TESTED: the {COUNT} published payloads, because there is no npm to fetch {PACKAGE} with")
    with tempfile.TemporaryDirectory(dir=archive.parent) as place:
        command = [npm, "pack", "--silent", "--ignore-scripts", "--pack-destination", place, PACKAGE]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, check=False)
        found = list(Path(place).glob("*.tgz"))
        if done.returncode or len(found) != 1:
            pytest.skip(f"NOT TESTED: the {COUNT} published payloads; npm pack said: {done.stderr.strip()[-300:]}")
        found[0].replace(archive)  # atomic: tests in other processes fetch the same
