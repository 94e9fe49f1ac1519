"""How many signed deliveries the receiver stores in a second, how long each waits, and what each role holds at rest.

`python -m bench.webhooks [--seconds N] [--connections N] [--repeat N] [--json FILE]`: the receiver is the program that
`agent-fix serve --role receiver` starts, over a real socket, on SQLite that waits for the disk.
"""

import argparse
import asyncio
import hashlib
import hmac
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any

SECRET = "a secret that only the bench knows"
BODY_BYTES = 9_000
"""Of a real `issue_comment` delivery."""
_TICKS = os.sysconf("SC_CLK_TCK")


def delivery(number: int, *, event: str = "issues") -> tuple[str, bytes]:
    """A delivery that is stored: a label was put on an issue."""
    payload: dict[str, Any] = {
        "action": "labeled",
        "label": {"name": "agent-fix"},
        "installation": {"id": 1},
        "sender": {"id": 1, "login": "octocat", "type": "User"},
        "repository": {"id": 7, "name": "hello", "owner": {"id": 5, "login": "octo-org", "type": "Organization"}},
        "issue": {
            "number": number,
            "title": "It breaks",
            "user": {"id": 2, "login": "o", "type": "User"},
            "labels": [],
        },
    }
    payload["repository"] |= {"default_branch": "main", "private": False, "archived": False}
    payload["issue"] |= {"state": "open", "locked": False, "body": ""}
    payload["issue"]["body"] = "x" * (BODY_BYTES - len(json.dumps(payload)))
    return event, json.dumps(payload).encode()


def request(number: int) -> bytes:
    event, body = delivery(number)
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    head = (
        "POST /webhook HTTP/1.1\r\nhost: bench\r\nuser-agent: GitHub-Hookshot/0\r\naccept: */*\r\n"
        f"content-type: application/json\r\nx-github-event: {event}\r\nx-github-delivery: bench-{number}\r\n"
        f"x-github-hook-id: 1\r\nx-github-hook-installation-target-id: 1\r\nx-hub-signature-256: sha256={signature}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def _client(port: int, requests: Iterator[bytes], until: float, waits: list[float], wrong: list[bytes]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for message in requests:
        began = perf_counter()
        writer.write(message)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        body = await reader.readexactly(int(length.split(b":")[1]))
        ended = perf_counter()
        waits.append(ended - began)
        if b"stored" not in body or b" 202 " not in head[:20]:
            wrong.append(head + body)
        if ended >= until:
            break
    writer.close()


async def _flood(
    port: int, connections: int, messages: Iterator[bytes], seconds: float
) -> tuple[list[float], list[bytes]]:
    waits: list[float] = []
    wrong: list[bytes] = []
    until = perf_counter() + seconds
    await asyncio.gather(*(_client(port, messages, until, waits, wrong) for _ in range(connections)))
    return waits, wrong


@contextmanager
def receiving(state: Path, more: Mapping[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The receiver in a process of its own, and its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=2_048) as door:
        environment = {
            "PATH": os.environ["PATH"],
            "AGENT_FIX_STATE_DIR": str(state),
            "AGENT_FIX_WEBHOOK_SECRET": SECRET,
            "AGENT_FIX_WEB_TOKEN": "a-token-of-the-bench",
            **(more or {}),
        }
        words = ("-I", "-m", "app", "serve", "--role", "receiver", "--listening", str(door.fileno()))
        process = subprocess.Popen(
            [sys.executable, *words], env=environment, cwd=state, pass_fds=(door.fileno(),), stderr=subprocess.PIPE
        )
        try:
            said = process.stderr.readline() if process.stderr else b""
            if b"ready" not in said:
                raise SystemExit(f"the receiver did not begin: {said.decode()}")
            yield process, door.getsockname()[1]
        finally:
            process.terminate()
            process.wait(30)


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def measure(seconds: float, connections: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="agent-fix-bench-") as place, receiving(Path(place)) as (process, port):
        asyncio.run(_flood(port, connections, map(request, range(100_000, 100_500)), 5.0))
        prepared = [request(number) for number in range(1, int(seconds * 4_000))]
        used, began = processor_seconds(process.pid), perf_counter()
        waits, wrong = asyncio.run(_flood(port, connections, iter(prepared), seconds))
        took, used = perf_counter() - began, processor_seconds(process.pid) - used
    if wrong:
        raise SystemExit(f"{len(wrong)} answers were no acceptance: {wrong[0]!r}")
    cuts = quantiles(waits, n=1_000)
    return {
        "per second": len(waits) / took,
        "per second of one core": len(waits) / used,
        "p50 ms": median(waits) * 1_000,
        "p99 ms": cuts[989] * 1_000,
        "worst ms": max(waits) * 1_000,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, metavar="N")
    parser.add_argument("--connections", type=int, default=8, metavar="N")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every sample to FILE")
    chosen = parser.parse_args()
    samples = [measure(chosen.seconds, chosen.connections) for _ in range(chosen.repeat)]
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"Python {platform.python_version()}, {os.cpu_count()} processors, load {load}, {chosen.repeat} times\n")
    for name in samples[0]:
        figures = [sample[name] for sample in samples]
        print(f"{name:<24}{median(figures):>10,.1f}   ({min(figures):,.1f} to {max(figures):,.1f})")
    if chosen.json:
        chosen.json.write_text(json.dumps(samples, indent=1) + "\n")


if __name__ == "__main__":
    main()
