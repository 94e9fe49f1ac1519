"""Checks for `agent-fix doctor --sandbox docker` (or `podman`): the engine, the image, and a container's isolation."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from app.core.errors import SandboxError
from app.sandbox.base import DoctorCheck
from app.sandbox.container.engine import INSTALL, OLDEST, START, ContainerEngine
from app.sandbox.container.image import ask_image, find_image, missing_image_hint, missing_tools
from app.sandbox.probe import Launch, ProbeContext
from app.sandbox.probe import checks as attacks
from app.sandbox.setup.plan import WORK_ENVIRONMENT

SOCKETS = (
    *("/run/docker.sock", "/var/run/docker.sock", "/run/podman/podman.sock", "/var/run/podman/podman.sock"),
    *("/run/containerd/containerd.sock", "/var/run/balena.sock"),
)
"""Where an engine's socket may be, through which a container could become root on the host."""
UNTRUSTWORTHY = "Do not use this engine for untrusted code; use --sandbox bubblewrap or --sandbox e2b."
REPAIRS: Mapping[str, str] = {
    "": UNTRUSTWORTHY,
    "process limit": "The engine needs the control group `pids`: rootless ones need cgroup v2 with delegation "
    "(systemd: Delegate=cpu cpuset io memory pids for user@.service).",
    "memory limit": "The engine needs the control group `memory`: rootless ones need cgroup v2 with delegation "
    "(systemd: Delegate=cpu cpuset io memory pids for user@.service).",
    "system call filter": "Start the engine with its default seccomp profile, not with seccomp-profile=unconfined.",
}


async def checks(engine: ContainerEngine, image: str, launch: Launch) -> tuple[DoctorCheck, ...]:
    """Creates a container and removes it. Stops at the first missing part, since nothing after it could hold."""
    found: list[DoctorCheck] = []
    for part in (_engine, _image):
        try:
            found += await part(engine, image)
        except SandboxError as error:
            repair = error.hint or START[engine.name]
            return (*found, DoctorCheck(part.__name__.strip("_"), ok=False, detail=error.message, repair=repair))
        if not all(check.ok for check in found):
            return tuple(found)
    tools = await ask_image(engine, image)
    python = next(word.partition(":")[2] for word in tools if word.startswith("interpreter:"))
    home = engine.environment.get("HOME", "")
    private = (*((f"{home}/.ssh", f"{home}/.config") if home else ()), *SOCKETS)
    context = ProbeContext(python, private, frozenset(dict(WORK_ENVIRONMENT)) | await _image_variables(engine, image))
    proofs = await attacks(launch, context)
    return (*found, *(_with_repair(proof) for proof in proofs))


async def _engine(engine: ContainerEngine, _: str) -> list[DoctorCheck]:
    version = await engine.version()
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    oldest = OLDEST[engine.name]
    engine_info = await engine.run(
        "info", "--format", "json" if engine.name == "podman" else "{{json .}}", action="asking it"
    )
    return [
        DoctorCheck(
            "engine",
            ok=numbers >= oldest,
            detail=f"{engine.title} {version}{_rootless_note(json.loads(engine_info))}",
            repair=""
            if numbers >= oldest
            else f"It must be {'.'.join(map(str, oldest))} or newer. {INSTALL[engine.name]}",
        )
    ]


def _rootless_note(engine_info: Mapping[str, object]) -> str:
    """Whether the engine runs as root, which it reports in one of two ways."""
    text = json.dumps([engine_info.get("SecurityOptions"), engine_info.get("host")])
    rootless = "name=rootless" in text or '"rootless": true' in text
    return ", rootless" if rootless else ", as root: a rootless engine would isolate better"


async def _image(engine: ContainerEngine, image: str) -> list[DoctorCheck]:
    await find_image(engine, image)
    lacks = missing_tools(await ask_image(engine, image))
    return [
        DoctorCheck(
            "image",
            ok=not lacks,
            detail=f"{image} lacks {', '.join(lacks)}" if lacks else image,
            repair=f"Install it in your own image, or use another one. {missing_image_hint(engine, image)}"
            if lacks
            else "",
        )
    ]


async def _image_variables(engine: ContainerEngine, image: str) -> frozenset[str]:
    return frozenset(name for name, _ in (await find_image(engine, image)).environment)


def _with_repair(proof: DoctorCheck) -> DoctorCheck:
    if proof.ok or proof.name == "start":
        return proof
    return replace(proof, repair=REPAIRS.get(proof.name, REPAIRS[""]))
