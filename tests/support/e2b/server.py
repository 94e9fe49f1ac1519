"""The local E2B as one ASGI application: control plane, the machines' envd, and faults on demand."""

import asyncio
import json
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from e2b.api.client.models import (
    ConnectSandbox,
    ListedSandbox,
    NewSandboxV2,
    Sandbox,
    SandboxDetail,
    SandboxNetworkUpdateConfig,
    SandboxSnapshotRequest,
    SandboxTimeoutRequest,
    SnapshotInfo,
)
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.sandbox.e2b.cloud import E2BAccount
from tests.support.e2b.envd import files, start, unary
from tests.support.e2b.machine import LocalMachine, copy
from tests.support.e2b.protocol import published
from tests.support.loopback import listening, serving

KEY = "e2b_0123456789abcdef0123456789abcdef01234567"
NOT_FOUND = "The sandbox was not found"
ENVD = "0.6.4"
TIME = "2026-01-01T00:00:00Z"


@dataclass(slots=True)
class Faults:
    """`status` and `hang` are by the beginning of a request's `METHOD /path`; `network` changes what is read back."""

    status: dict[str, int] = field(default_factory=dict)
    hang: set[str] = field(default_factory=set)
    lose_at: int = 0
    """The number of the command at whose start its machine goes away."""
    network: Callable[[dict[str, Any]], dict[str, Any]] = lambda told: told


@dataclass(slots=True, eq=False)
class LocalE2B:
    """Machines live below `place`. `requests` is everything that was asked, in order."""

    place: Path
    machines: dict[str, LocalMachine] = field(default_factory=dict)
    snapshots: dict[str, str] = field(default_factory=dict)
    """Ids, and the names that they were given."""
    templates: set[str] = field(default_factory=set)
    """Names of the account's own templates, besides `base`."""
    requests: list[tuple[str, Any]] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    account: E2BAccount = field(default_factory=lambda: E2BAccount(KEY))

    def app(self) -> Starlette:
        routes = [Route("/{rest:path}", self.answer, methods=["GET", "POST", "PUT", "DELETE"])]
        return Starlette(routes=routes)

    def said(self, beginning: str) -> list[Any]:
        """The bodies of the requests that begin so."""
        return [body for what, body in self.requests if what.startswith(beginning)]

    async def answer(self, request: Request) -> Response:
        what = f"{request.method} {request.url.path}"
        plain = request.headers.get("content-type", "").startswith("application/json")
        self.requests.append((what, json.loads(await request.body() or b"null") if plain else None))
        if any(what.startswith(fault) for fault in self.faults.hang):
            while (await request.receive())["type"] != "http.disconnect":
                pass
            return Response(status_code=499)
        for fault, status in self.faults.status.items():
            if what.startswith(fault):
                return JSONResponse({"code": status, "message": "out of order"}, status)
        if "e2b-sandbox-id" in request.headers:
            return await self.inside(request)
        if request.headers.get("x-api-key") != KEY:
            return JSONResponse({"code": 401, "message": "no such key"}, 401)
        return await self.control(request, what)

    async def inside(self, request: Request) -> Response:
        machine = self.machines.get(request.headers["e2b-sandbox-id"])
        if machine is None or machine.state != "running":
            return JSONResponse({"message": NOT_FOUND, "code": 502}, 502)
        if request.headers.get("x-access-token") != machine.token:
            return JSONResponse({"code": "unauthenticated", "message": "no such token"}, 401)
        path = request.url.path
        if path == "/health":
            return Response(status_code=204)
        if path == "/files":
            return await files(machine, request)
        if path == "/process.Process/Start":
            if len(self.said("POST /process.Process/Start")) == self.faults.lose_at:
                await self.lose(machine.id)
            return await start(machine, request)
        return await unary(machine, request, path.rpartition("/")[2])

    async def control(self, request: Request, what: str) -> Response:
        if what == "POST /v2/sandboxes":
            return await self.create(published(NewSandboxV2, await request.json()))
        if what == "GET /v2/sandboxes":
            return self.found(request)
        if what == "GET /snapshots":
            return JSONResponse([self.told(name) for name in self.snapshots])
        if what.startswith("DELETE /templates/"):
            return await self.forget(unquote(what.rpartition("/")[2]))
        _, *parts = request.url.path.removeprefix("/v2").split("/")
        machine = self.machines.get(parts[1]) if len(parts) > 1 else None
        if machine is None:
            return JSONResponse({"code": 404, "message": "no such sandbox"}, 404)
        return await self.change(machine, request, parts[2] if len(parts) > 2 else "")

    async def change(self, machine: LocalMachine, request: Request, action: str) -> Response:
        match request.method, action:
            case "GET", "":
                return JSONResponse(published(SandboxDetail, self.detail(machine)))
            case "DELETE", "":
                await self.lose(machine.id)
            case "POST", "timeout":
                machine.alive = published(SandboxTimeoutRequest, await request.json())["timeout"]
            case "PUT", "network":
                body = published(SandboxNetworkUpdateConfig, await request.json())
                machine.network = {**body, "allowPublicTraffic": machine.network.get("allowPublicTraffic")}
                machine.internet = body.pop("allow_internet_access", None)
            case "POST", "pause":
                await machine.end()
                machine.state = "paused"
            case "POST", "connect":
                published(ConnectSandbox, await request.json())
                status = 200 if machine.state == "running" else 201
                machine.state = "running"
                return JSONResponse(published(Sandbox, self.short(machine)), status)
            case "POST", "snapshots":
                body = published(SandboxSnapshotRequest, await request.json())
                return await self.snapshot(machine, body.get("name", ""))
        return Response(status_code=204)

    async def snapshot(self, machine: LocalMachine, name: str) -> Response:
        made = f"t{secrets.token_hex(6)}:default"
        await asyncio.to_thread(copy, machine.root, self.place / made)
        self.snapshots[made] = name
        return JSONResponse(self.told(made), 201)

    def told(self, snapshot: str) -> dict[str, Any]:
        """Names are told in full."""
        name = self.snapshots[snapshot]
        names = [f"a-team/{name}:default"] if name else []
        return published(SnapshotInfo, {"snapshotID": snapshot, "names": names})

    async def forget(self, snapshot: str) -> Response:
        if self.snapshots.pop(snapshot, None) is None:
            return JSONResponse({"code": 404, "message": "no such template"}, 404)
        await asyncio.to_thread(shutil.rmtree, self.place / snapshot)
        return Response(status_code=204)

    async def create(self, body: dict[str, Any]) -> Response:
        template = body["templateID"]
        if template not in {"base", *self.templates, *self.snapshots}:
            return JSONResponse({"code": 404, "message": "no such template"}, 404)
        name = secrets.token_hex(8)
        machine = LocalMachine(
            id=name,
            root=self.place / name,
            metadata=body.get("metadata", {}),
            network=body.get("network", {}),
            internet=body.get("allow_internet_access"),
            token=secrets.token_hex(16),
            alive=body.get("timeout", 300),
        )
        if template not in self.snapshots:
            await asyncio.to_thread(machine.furnish)
            (machine.root / "etc/template").write_text(template)
        else:
            await asyncio.to_thread(copy, self.place / template, machine.root)
        self.machines[name] = machine
        return JSONResponse(published(Sandbox, self.short(machine)), 201)

    def found(self, request: Request) -> Response:
        query = parse_qsl(request.query_params.get("metadata", ""))
        wanted = {unquote(name): unquote(value) for name, value in query}
        found = [one for one in self.machines.values() if wanted.items() <= dict(one.metadata).items()]
        return JSONResponse([published(ListedSandbox, self.listed(machine)) for machine in found])

    def short(self, machine: LocalMachine) -> dict[str, Any]:
        return {
            "templateID": "base",
            "sandboxID": machine.id,
            "clientID": "local",
            "envdVersion": ENVD,
            "envdAccessToken": machine.token,
        }

    def listed(self, machine: LocalMachine) -> dict[str, Any]:
        """A list has neither tokens nor networks."""
        alone = ("envdAccessToken", "allowInternetAccess", "network")
        return {name: value for name, value in self.detail(machine).items() if name not in alone}

    def detail(self, machine: LocalMachine) -> dict[str, Any]:
        return {
            **self.short(machine),
            "startedAt": TIME,
            "endAt": TIME,
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 1024,
            "state": machine.state,
            "metadata": dict(machine.metadata),
            "allowInternetAccess": machine.internet,
            "network": self.faults.network(dict(machine.network)),
        }

    def end(self) -> None:
        """What still executes, so that the server can stop."""
        for machine in self.machines.values():
            self.end_processes(machine)

    def end_processes(self, machine: LocalMachine) -> None:
        """From any thread."""
        for pid in list(machine.processes):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    async def lose(self, sandbox_id: str) -> None:
        """The machine is gone, with all that it executes."""
        machine = self.machines.pop(sandbox_id, None)
        if machine is not None:
            machine.state = "gone"
            await machine.end()
            await asyncio.to_thread(machine.remove)


@contextmanager
def local_e2b(place: Path) -> Iterator[LocalE2B]:
    """Served at a loopback port for as long as the context lasts; no machine of it outlives it."""
    place.mkdir(parents=True, exist_ok=True)
    server = LocalE2B(place)
    try:
        with listening() as listener, serving(server.app(), listener) as address:
            server.account = E2BAccount(KEY, api=address, sandboxes=address)
            try:
                yield server
            finally:
                server.end()
    finally:
        shutil.rmtree(place)
