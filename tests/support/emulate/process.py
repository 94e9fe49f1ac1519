"""Emulate as a process of ours: seeded, started on a loopback port, and gone when we are."""

import json
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.support.emulate.provision import Programs

_END_WITH_US = 'data:text/javascript,process.stdin.resume().on("end",()=>process.exit(0))'
"""Its standard input is a pipe from us: when that ends, so does it, even after `kill -9`."""
MAX_ATTEMPTS = 3
SECONDS = 15.0


class StartError(Exception):
    """Emulate did not come up; the text is what it said."""


@contextmanager
def emulate(programs: Programs, seed: Mapping[str, Any], site: str, place: Path) -> Iterator[str]:
    """Emulate's GitHub with this seed, known to the world as `site`; its own address."""
    seed_file = place / "seed.json"
    seed_file.write_text(json.dumps(seed))
    seed_file.chmod(0o600)
    child, address = _started(programs, seed_file, site, place)
    try:
        yield address
    finally:
        _end(child)


def _started(programs: Programs, seed: Path, site: str, place: Path) -> tuple[subprocess.Popen[bytes], str]:
    """It takes no port 0, so another process may be faster to a free one: then once more."""
    start = [str(programs.node), "--import", _END_WITH_US, str(programs.emulate), "start"]
    for _ in range(MAX_ATTEMPTS):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        said = place / "emulate.log"
        with said.open("wb") as log:
            child = subprocess.Popen(
                [*start, "--service", "github", "--port", str(port), "--base-url", site, "--seed", str(seed)],
                cwd=place,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        address = f"http://127.0.0.1:{port}"
        if _answers(child, address):
            return child, address
        _end(child)
    raise StartError(said.read_text(errors="replace")[-2_000:])


def _answers(child: subprocess.Popen[bytes], address: str) -> bool:
    """Whether it answers before it ends or the time is over."""
    until = time.monotonic() + SECONDS
    with httpx.Client(timeout=1.0) as client:
        while child.poll() is None and time.monotonic() < until:
            try:
                return client.get(f"{address}/zen").is_success and child.poll() is None
            except httpx.TransportError:
                time.sleep(0.02)
    return False


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    child.terminate()
    try:
        child.wait(5)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait(5)
