"""Opens sandboxes in containers: finds them by name, or creates, fills and prepares them."""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from app.core.errors import SandboxError
from app.sandbox.base import FORWARDER, TOOLS, DoctorCheck, OnOutput, Sandbox, SandboxSpec
from app.sandbox.container.engine import INSTALL, OLDEST, START, ContainerEngine, ContainerMachine
from app.sandbox.container.images import (
    CERTIFICATES,
    DEFAULT,
    FILL,
    HIDE_NAMES,
    KEY,
    SCOPE,
    ContainerImage,
    ContainerSpec,
    ImageBuilder,
    ask_image,
    fill,
    find_image,
    forget_unused,
    missing_image_hint,
    missing_tools,
)
from app.sandbox.host_directories import KEY as KEY_FORM
from app.sandbox.machine.preparation import FINISH, notes, packing_tree, reopen
from app.sandbox.machine.sandbox import MachineSandbox
from app.sandbox.probe import Launch, ProbeContext, proven
from app.sandbox.probe import checks as attacks
from app.sandbox.setup.layer_build import FORWARDER_PROGRAM
from app.sandbox.setup.layers import machine_proxy
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


logger = logging.getLogger(__name__)


class ContainerProvider:
    """`name` is `docker` or `podman`. `scope` separates this installation from others on the same engine; `caches`
    holds the names of set-ups. `environment` is this machine's, for the engine's own command line."""

    def __init__(
        self,
        name: str,
        *,
        scope: str,
        caches: Path,
        environment: Mapping[str, str],
        image: str = "",
        seconds: float = 60.0,
    ) -> None:
        self.name = name
        place = caches / name
        self._engine = ContainerEngine(name, environment, place, seconds)
        self._scope = hashlib.sha256(scope.encode()).hexdigest()[:32]
        self._marks = place / "set-ups"
        self._image = image or DEFAULT
        self._found: ContainerImage | None = None
        self._upstream = machine_proxy(environment)

    async def check(self) -> tuple[DoctorCheck, ...]:
        return await checks(self._engine, self._image, self.launch)

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Raises SandboxError if an essential property does not hold; there is no silent fallback."""
        return await proven(await self.launch(spec, on_output=on_output))

    async def launch(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Open without the check of its properties; for the doctor."""
        if not KEY_FORM.fullmatch(spec.key):
            raise SandboxError(f"A sandbox key may only contain letters, digits and ._:@=+-, not {spec.key!r}.")
        builder = await self._image_builder()
        machine = ContainerMachine(self._engine, self._wanted(spec).name)
        left_out = await self._reopen(machine, spec)
        if left_out is None:
            left_out = await self._create(builder, spec, on_output)
        planned = dict(spec.setup.environment if spec.setup else ())
        usable_variables = {name: value for name, value in planned.items() if name not in CERTIFICATES}
        environment = {**builder.image.variables(), **usable_variables, **dict(WORK_ENVIRONMENT)}
        return MachineSandbox(
            machine, spec.key, spec.limits, environment, left_out=left_out, model_socket=spec.model_socket
        )

    async def tools(self) -> frozenset[str]:
        """Names of the programs that set-ups may use, of those that the image has."""
        return await ask_image(self._engine, (await self._image_builder()).image.name)

    async def sweep(self, ended: Callable[[str], bool]) -> int:
        """Remove the containers of ended jobs, and unused set-ups; returns how many."""
        self._marks.mkdir(mode=0o700, parents=True, exist_ok=True)
        removed = 0
        for name in await self._engine.containers(f"{SCOPE}={self._scope}"):
            description = await self._engine.container(name)
            if description is not None and ended((description["Config"].get("Labels") or {}).get(KEY, "")):
                await self._engine.remove(name)
                removed += 1
        return removed + await forget_unused(self._engine, self._scope, self._marks)

    async def _image_builder(self) -> ImageBuilder:
        if self._found is None:
            self._found = await find_image(self._engine, self._image)
            self._marks.mkdir(mode=0o700, parents=True, exist_ok=True)  # also shows that there is something to sweep
        return ImageBuilder(self._engine, self._found, self._scope, self._marks, self._upstream)

    def _wanted(self, spec: SandboxSpec, image: str = "") -> ContainerSpec:
        digest = hashlib.sha256(f"{self._scope} {spec.key}".encode()).hexdigest()[:24]
        return ContainerSpec(
            f"agent-fix-{digest}", self._scope, spec.key, image, spec.limits, quota=self._engine.name == "docker"
        )

    async def _reopen(self, machine: ContainerMachine, spec: SandboxSpec) -> tuple[str, ...] | None:
        """What failed in the set-up of this key's container, if it was completed; an incomplete one is removed."""
        wanted = self._wanted(spec)
        description = await self._engine.container(wanted.name)
        if description is None:
            return None
        if description["State"].get("Running"):
            await self._engine.stop(wanted.name)  # a process of ours died, and something of it may still run
        if wanted.difference(description):
            logger.warning("the container of %s has changed; it is created again", spec.key)
        else:
            await self._engine.start(wanted.name)
            left_out = await reopen(machine, HIDE_NAMES)
            if left_out is not None:
                return left_out
            logger.warning("the sandbox %s was never finished; it is created again", spec.key)
        await self._engine.remove(wanted.name)
        return None

    async def _create(self, builder: ImageBuilder, spec: SandboxSpec, on_output: OnOutput | None) -> tuple[str, ...]:
        """What failed in its set-up."""
        image = builder.image.name
        without_project = replace(spec, fill=lambda _: None)  # an agent's programs need no project
        image = await builder.image_with(image, without_project, spec.tools, target=TOOLS, on_output=on_output)
        image = await builder.image_with(image, spec, spec.setup, on_output=on_output)
        wanted = self._wanted(spec, image)
        directories = spec.setup.directories if spec.setup else ()
        async with packing_tree(spec.begin_work) as tree, builder.new_container(wanted) as machine:
            left_out = await fill(machine, wanted, f"{FILL}{FINISH}", tree, *directories)
            if spec.model_socket is not None:
                await machine.upload(FORWARDER, FORWARDER_PROGRAM.read_bytes())
        return notes(left_out)
