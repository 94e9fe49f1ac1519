"""The part of the local E2B that lives in each machine: files and processes, in Connect's JSON codec."""

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.support.e2b.machine import CHUNK, LocalMachine
from tests.support.e2b.protocol import asked_of_envd, told_by_envd

END_OF_STREAM = 2


def envelope(message: dict[str, Any], flags: int = 0) -> bytes:
    body = json.dumps(message).encode()
    if not flags:
        told_by_envd("Start", body.decode())
    return struct.pack(">BI", flags, len(body)) + body


async def files(machine: LocalMachine, request: Request) -> Response:
    """An upload."""
    path = request.query_params.get("path", "")
    content = await request.body()
    await asyncio.to_thread(machine.write, path, content)
    return JSONResponse([{"name": path.rpartition("/")[2], "type": "file", "path": path}])


async def start(machine: LocalMachine, request: Request) -> Response:
    body = (await request.body())[5:].decode()
    asked_of_envd("Start", body)
    message = json.loads(body)
    asked = message["process"]
    process = await machine.start([asked["cmd"], *asked.get("args", [])])
    if not message.get("stdin") and process.stdin is not None:
        process.stdin.close()
    return StreamingResponse(events(machine, process), media_type="application/connect+json")


async def events(machine: LocalMachine, process: asyncio.subprocess.Process) -> AsyncIterator[bytes]:
    yield envelope({"event": {"start": {"pid": process.pid}}})
    heard: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(8)

    async def pump(name: str, stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (chunk := await stream.read(CHUNK)):
            await heard.put((name, chunk))
        await heard.put((name, b""))

    pumps = [
        asyncio.create_task(pump(name, stream))
        for name, stream in (("stdout", process.stdout), ("stderr", process.stderr))
    ]
    try:
        waiting = len(pumps)
        while waiting:
            name, chunk = await heard.get()
            waiting -= not chunk
            if chunk:
                yield envelope({"event": {"data": {name: base64.b64encode(chunk).decode()}}})
        code = await process.wait()
        if machine.state != "gone":
            yield envelope(
                {"event": {"end": {"exitCode": max(code, 0) or (code and 1), "exited": code >= 0, "status": ""}}}
            )
            yield envelope({}, END_OF_STREAM)
        else:
            error = {"code": "unavailable", "message": "the connection to sandbox ended before the stream completed"}
            yield envelope({"error": error}, END_OF_STREAM)
    finally:
        machine.processes.pop(process.pid, None)
        for task in pumps:
            task.cancel()


async def unary(machine: LocalMachine, request: Request, name: str) -> Response:
    asked_of_envd(name, (await request.body()).decode())
    message = await request.json()
    process = machine.processes.get(int(message["process"]["pid"]))
    if process is None:
        return JSONResponse({"code": "not_found", "message": "no such process"}, 404)
    if name == "SendSignal":
        with suppress(ProcessLookupError):
            process.kill()
    elif name == "SendInput" and process.stdin is not None:
        process.stdin.write(base64.b64decode(message["input"]["stdin"]))
        with suppress(BrokenPipeError, ConnectionResetError):
            await process.stdin.drain()
    elif name == "CloseStdin" and process.stdin is not None:
        process.stdin.close()
    return JSONResponse({})
