"""Opens sandboxes in containers: finds them by name, or creates, fills and prepares them.

The image that containers are made from is examined first; a set-up's result becomes an image of its own.
"""

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.core.errors import SandboxError
from app.core.scratch import scratch
from app.sandbox.base import (
    ENV,
    FORWARDER,
    FORWARDER_PROGRAM,
    SYSTEM_PATH,
    TOOLS,
    WORK_ENVIRONMENT,
    DoctorCheck,
    OnOutput,
    Sandbox,
    SandboxLimits,
    SandboxSpec,
    SetupPlan,
    base_variables,
)
from app.sandbox.container.engine import INSTALL, OLDEST, START, ContainerEngine, ContainerMachine, discard
from app.sandbox.egress.proxy import PORT, PROXY_ENVIRONMENT, EgressProxy, Upstream
from app.sandbox.host_directories import check_key, exclusive_lock
from app.sandbox.machine.base import (
    ARCHIVE,
    FINISH,
    OPEN,
    PREPARE,
    UNPACK,
    Machine,
    PackedTree,
    keep_result,
    packing_tree,
    parse_result,
    prepare_arguments,
    reopen,
)
from app.sandbox.machine.sandbox import MachineSandbox
from app.sandbox.machine.socket_tunnel import SocketTunnel
from app.sandbox.probe import Launch, ProbeContext, proven
from app.sandbox.probe import checks as attacks
from app.sandbox.setup.package_clients import CERTIFICATE_FILES, CERTIFICATE_VARIABLES
from app.sandbox.setup.package_tools import SYSTEM_TOOLS
from app.sandbox.setup.run_commands import SetupResult, carry_out, to_repeat

logger = logging.getLogger(__name__)

# Builds a container's `create` arguments, and checks the created container before it is used.
# No file of this machine is mounted: the tree goes in as an archive over a stream, so that an engine on another
# machine works too. Commands can only write to /workspace, /tmp and their home in the container's own layer: they run
# as an account that owns nothing else and has no capabilities.

SCOPE = "agent-fix"
KEY = "agent-fix-key"
"""Labels: the installation and the tree."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "KILL", "SETGID", "SETPCAP", "SETUID")
"""Capabilities of the supervisor, as root inside: to fill a tree for another account, to become it, to end it."""
RESERVE = 64
"""Our own processes (supervisors, the socket) in addition to those of commands."""
FILES = 8192
PERIOD = 100_000
"""Microseconds. `--cpus` is the same, but refuses more processors than there are."""
SHM = "512m"
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY")
NO_PROXIES = [word for name in _PROXIES for form in (name, name.lower()) for word in ("--env", f"{form}=")]
"""Both engines pass this machine's proxies on, including passwords, unless they are told not to."""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """A container to create: its name, labels, image and limits."""

    name: str
    scope: str
    key: str
    image: str
    limits: SandboxLimits
    quota: bool = False
    """Whether the engine limits processor time: rootless Podman often cannot, and would not start the container."""

    def arguments(self) -> list[str]:
        """Arguments of `create`. Process 1 only waits: whoever starts a command reaps what it leaves."""
        limits = self.limits
        return [
            *("--pull", "never", "--name", self.name, "--hostname", "sandbox"),
            *("--label", f"{SCOPE}={self.scope}", "--label", f"{KEY}={self.key}"),
            *("--network", "none", "--ipc", "private", "--cap-drop", "ALL"),
            *(word for name in CAPABILITIES for word in ("--cap-add", name)),
            *("--security-opt", "no-new-privileges"),
            *("--pids-limit", str(limits.processes + RESERVE)),
            *(("--cpu-period", str(PERIOD), "--cpu-quota", str(limits.cpus * PERIOD)) if self.quota else ()),
            *("--memory", str(limits.memory), "--memory-swap", str(limits.memory), "--shm-size", SHM),
            *("--ulimit", f"nofile={FILES}:{FILES}", "--ulimit", "core=0:0"),
            *("--ulimit", f"nproc={limits.processes + RESERVE}:{limits.processes + RESERVE}"),
            *("--log-driver", "none", "--no-healthcheck", "--user", "0", "--workdir", "/", *NO_PROXIES),
            *("--entrypoint", "sleep", self.image, "infinity"),
        ]

    def difference(self, description: Mapping[str, Any]) -> str:
        """Properties of the container that were not requested; the engine's own settings may add some."""
        host = description["HostConfig"]
        labels = description["Config"].get("Labels") or {}
        added = {str(name).upper().removeprefix("CAP_") for name in host.get("CapAdd") or ()}
        effective = description.get("EffectiveCaps")
        if effective is not None:  # Podman reports the result here
            added = {str(name).upper().removeprefix("CAP_") for name in effective}
        mounts = [
            str(mount.get("Source")) for mount in description.get("Mounts") or () if mount.get("Type") != "volume"
        ]
        wrong = {
            "its labels": (labels.get(SCOPE), labels.get(KEY)) != (self.scope, self.key),
            "its network": host.get("NetworkMode") != "none",
            "privileged": bool(host.get("Privileged")),
            f"capabilities {', '.join(sorted(added - set(CAPABILITIES)))}": not added <= set(CAPABILITIES),
            f"files of this machine: {', '.join(mounts)}": bool(mounts or host.get("Binds")),
            "devices": bool(host.get("Devices")),
            "processes of this machine": host.get("PidMode") not in {"", "private"},
            "no limit of memory": host.get("Memory") != self.limits.memory,
            "no limit of processors": self.quota and host.get("CpuQuota") != self.limits.cpus * PERIOD,
            "no limit of processes": host.get("PidsLimit") != self.limits.processes + RESERVE,
            "new privileges": not any("no-new-privileges" in option for option in host.get("SecurityOpt") or ()),
        }
        return "; ".join(what for what, is_so in wrong.items() if is_so)


DEFAULT = "python:3.12-bookworm"
NEEDED = (
    *("python3", "git", "grep", "gzip", "sleep", "mv", "rm", "chmod", "rmdir", "realpath", "install", "base64"),
    *("/bin/sh", "/bin/bash", "/usr/bin/env", "/usr/bin/find", "/usr/bin/setpriv", "/usr/bin/sha1sum"),
    *("/usr/bin/tar", "/usr/bin/xargs"),
)
"""Programs without which no sandbox or job can run."""
MIN_PYTHON = (3, 9)
QUESTION_SECONDS = 120
"""After this time a container for a question is gone, even if its caller has died."""
_FIND_TOOLS = """
for name in "$@"; do command -v "$name" > /dev/null 2>&1 && echo "$name"; done
echo "interpreter:$(command -v python3)"
find / -maxdepth 0 -printf 'gnu-find\n' 2> /dev/null
python3 -I -c 'import asyncio, ctypes, selectors, sys; print("python-%d.%d" % sys.version_info[:2])' 2> /dev/null
exit 0
"""
_OUR_VARIABLES = ("HOME", "HOSTNAME", "TMPDIR", "LANG")


@dataclass(frozen=True, slots=True)
class ContainerImage:
    """`id` is the engine's digest; `environment` are the variables that it sets."""

    name: str
    id: str
    environment: tuple[tuple[str, str], ...]

    @classmethod
    def from_inspect(cls, name: str, facts: Mapping[str, Any]) -> "ContainerImage":
        pairs = (str(entry).partition("=") for entry in facts.get("Config", {}).get("Env") or ())
        return cls(name, str(facts["Id"]), tuple((key, value) for key, _, value in pairs if key not in _OUR_VARIABLES))

    def variables(self) -> dict[str, str]:
        """Every variable of a command, without those of the set-up and the single command."""
        variables = dict(self.environment)
        path = variables.pop("PATH", "") or ":".join(SYSTEM_PATH)
        return {**variables, **base_variables(path)}


async def find_image(engine: ContainerEngine, name: str) -> ContainerImage:
    """Raises SandboxError if it does not exist: nothing is downloaded while a job waits."""
    facts = await engine.image(name)
    if facts is None:
        raise SandboxError(f"{engine.title} does not have the image {name}.", hint=missing_image_hint(engine, name))
    return ContainerImage.from_inspect(name, facts)


def missing_image_hint(engine: ContainerEngine, name: str) -> str:
    return f"Fetch it with `{engine.name} pull {name}`, or set AGENT_FIX_CONTAINER_IMAGE to another one."


async def ask_image(engine: ContainerEngine, image: str) -> frozenset[str]:
    """Which of NEEDED and SYSTEM_TOOLS the image has, and `gnu-find`, `python-MAJOR.MINOR`, `interpreter:PATH`. Raises
    SandboxError if that cannot be found out, for example without `sh` or `sleep`."""
    name = f"agent-fix-question-{secrets.token_hex(8)}"
    try:
        *words, _ = ContainerSpec(name, scope="", key="", image=image, limits=SandboxLimits()).arguments()
        await engine.create(["--rm", *words, str(QUESTION_SECONDS)])
        await engine.start(name)
        words = ["sh", "-c", _FIND_TOOLS, "sh", *NEEDED, *SYSTEM_TOOLS]
        output = await engine.run("exec", name, *words, action="asking the image")
    finally:
        await discard(engine, name)
    return frozenset(output.split())


def missing_tools(tools: frozenset[str]) -> Sequence[str]:
    """What an image lacks, according to `ask_image`."""
    lacks = [name for name in NEEDED if name not in tools]
    if "/usr/bin/find" in tools and "gnu-find" not in tools:
        lacks.append("GNU find (findutils)")
    versions = [tuple(map(int, word[7:].split("."))) for word in tools if word.startswith("python-")]
    if "python3" in tools and (not versions or versions[0] < MIN_PYTHON):
        lacks.append("a complete Python 3.9 or newer")
    return lacks


HIDE_NAMES = ": > /etc/resolv.conf; echo '127.0.0.1 localhost sandbox' > /etc/hosts"
"""The engine writes this machine's names and name servers there."""

_LACKING = f"""
lacking=$(for name in {" ".join(NEEDED)}; do command -v $name > /dev/null 2>&1 || printf ' %s' $name; done)
[ -z "$lacking" ] || {{ echo "the image lacks$lacking; see agent-fix doctor" >&2; exit 3; }}
"""

FILL = f"{_LACKING}{HIDE_NAMES}\n{PREPARE}cat > {ARCHIVE}\n{UNPACK}"
"""Prepared, and filled from stdin."""

MAX_SIZE = 4 * 1024**2
CERTIFICATE_PLACE = "/run/agent-fix-files"
SYSTEM_CERTIFICATES = (
    Path("/etc/ssl/certs/ca-certificates.crt"),
    Path("/etc/pki/tls/certs/ca-bundle.crt"),
    Path("/etc/ssl/ca-bundle.pem"),
    Path("/etc/ssl/cert.pem"),
)
"""Where distributions and macOS keep the machine's trusted certificates."""


async def copy_certificates(machine: Machine, environment: Mapping[str, str]) -> dict[str, str]:
    """A set-up's variables, with copies of the files that name certificates, or the system's if none is named."""
    variables = {name: value for name, value in environment.items() if name not in CERTIFICATE_VARIABLES}
    for name in sorted(environment.keys() & set(CERTIFICATE_VARIABLES)):
        content = await asyncio.to_thread(_file, Path(environment[name]))
        if content is not None:
            variables[name] = f"{CERTIFICATE_PLACE}/{name}"
            await machine.upload(variables[name], content)
    for path in SYSTEM_CERTIFICATES:
        content = await asyncio.to_thread(_file, path)
        if content is not None:
            await machine.upload(f"{CERTIFICATE_PLACE}/system", content)
            return {**dict.fromkeys(CERTIFICATE_FILES, f"{CERTIFICATE_PLACE}/system"), **variables}
    return variables


def _file(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.is_absolute() and path.is_file() and path.stat().st_size <= MAX_SIZE else None
    except (OSError, ValueError):
        return None


REPOSITORY = "agent-fix-setup"
UNUSED_SECONDS = 14 * 24 * 3600
MIN_NUMBER, NUMBERS = 20_000, 40_000


@dataclass(frozen=True, slots=True)
class ImageBuilder:
    """Builds images: `marks` is a directory with a file for each stored set-up, whose time is that of its last use."""

    engine: ContainerEngine
    image: ContainerImage
    scope: str
    marks: Path
    environment: Mapping[str, str]
    """This machine's, which may name a proxy."""

    @asynccontextmanager
    async def new_container(self, wanted: ContainerSpec) -> AsyncIterator[ContainerMachine]:
        """A started and checked container, with nothing of the project yet; removed after an error."""
        async with AsyncExitStack() as unfinished:
            unfinished.push_async_callback(discard, self.engine, wanted.name)
            await self.engine.create(wanted.arguments())
            await prove(self.engine, wanted)
            await self.engine.start(wanted.name)
            yield ContainerMachine(self.engine, wanted.name)
            unfinished.pop_all()

    async def image_with(
        self,
        base: str,
        spec: SandboxSpec,
        setup: SetupPlan,
        *,
        target: str = ENV,
        on_output: OnOutput | None = None,
    ) -> str:
        """The image with the set-up's result in `target`, made from `base`; `base` itself if there is nothing to do.

        Raises SetupError with the command, its exit code and the end of its output.
        """
        if not setup.commands:
            return base
        facts = await self.engine.image(base)
        what = f"{self.scope} {(facts or {}).get('Id')} {setup.key or setup!r} {target}"
        name = hashlib.sha256(what.encode()).hexdigest()[:32]
        own = f"{name}-{hashlib.sha256(spec.key.partition('.')[0].encode()).hexdigest()[:8]}"
        async with exclusive_lock(self.marks / f"{name}.lock"):
            for kept in (name, own):
                if await self.engine.image(f"{REPOSITORY}:{kept}") is not None:
                    (self.marks / kept).touch()
                    return f"{REPOSITORY}:{kept}"
            kept = await self._build(base, replace(spec, setup=setup), target, (name, own), on_output)
            (self.marks / kept).touch()
        return f"{REPOSITORY}:{kept}"

    async def _build(
        self, base: str, spec: SandboxSpec, target: str, names: tuple[str, str], on_output: OnOutput | None
    ) -> str:
        """The name it is stored under: the second one, for this job alone, if a part failed."""
        setup = spec.setup
        name, quota = f"agent-fix-setup-{secrets.token_hex(8)}", self.engine.name == "docker"
        wanted = ContainerSpec(name, self.scope, spec.key, base, spec.limits, quota=quota)
        async with packing_tree(spec.fill) as tree, self.new_container(wanted) as machine:
            await fill(machine, wanted, f"{FILL}{OPEN}", tree, target)
            certificates = await copy_certificates(machine, dict(setup.environment))
            environment = {**self.image.variables(), **PROXY_ENVIRONMENT, **certificates}
            sandbox = MachineSandbox(machine, spec.key, spec.limits, environment)
            # The only time when anything is reachable: the named hosts, through our proxy.
            with scratch("egress") as private:
                socket = private / "egress.sock"
                upstream = Upstream.from_environment(self.environment, setup.hosts)
                proxy = EgressProxy(socket, setup.hosts, upstream=upstream)
                async with proxy, SocketTunnel(machine, str(PORT), socket):
                    failed = await carry_out(setup, sandbox, on_output, explain=lambda: proxy.explanation)
            failed = await keep_result(machine, target, failed)
            kept = names[to_repeat(failed)]
            await self.engine.commit(wanted.name, f"{REPOSITORY}:{kept}", [f"LABEL {SCOPE}={self.scope}"])
        await discard(self.engine, wanted.name)
        return kept


async def forget_unused(engine: ContainerEngine, scope: str, marks: Path) -> int:
    """Remove the stored set-ups of `scope` that have been unused for long; returns how many.

    One without a mark gets one, so that losing the caches does not remove images early.
    """
    for image in await engine.images(f"{SCOPE}={scope}"):
        repository, _, name = image.rpartition(":")
        if repository.rpartition("/")[2] == REPOSITORY and not (marks / name).exists():
            (marks / name).touch()
    removed = 0
    for mark in await asyncio.to_thread(_unused, marks):
        try:
            await engine.remove_image(f"{REPOSITORY}:{mark.name}")
        except SandboxError as error:  # a container still uses it; the next sweep tries again
            logger.info("the set-up %s stays: %s", mark.name, error.message)
            continue
        mark.unlink(missing_ok=True)
        mark.with_suffix(".lock").unlink(missing_ok=True)
        removed += 1
    return removed


def _unused(marks: Path) -> list[Path]:
    oldest = time.time() - UNUSED_SECONDS
    kept = (path for path in marks.glob("*") if path.suffix != ".lock")
    return [path for path in kept if path.stat().st_mtime < oldest]


async def fill(machine: ContainerMachine, wanted: ContainerSpec, script: str, tree: PackedTree, *target: str) -> str:
    """The output of a script that starts with FILL and gets the tree on its stdin."""
    words = prepare_arguments(uid_of(wanted), tree.files, *target)
    return await machine.feed(["bash", "-euo", "pipefail", "-c", script, "fill", *words], tree.archive)


async def prove(engine: ContainerEngine, wanted: ContainerSpec) -> None:
    """Raises SandboxError if the engine created a container with other properties than requested."""
    description = await engine.container(wanted.name)
    difference = wanted.difference(description) if description is not None else "it is gone"
    if difference:
        raise SandboxError(
            f"{engine.title} created a container with other properties than requested: {difference}.",
            hint=f"Check {engine.title}'s configuration: its defaults may add to what a container gets.",
        )


def uid_of(wanted: ContainerSpec) -> int:
    """The uid of its commands: process limits count by uid over all containers, so each has its own."""
    digest = hashlib.sha256(f"{wanted.scope} {wanted.name}".encode()).digest()
    return MIN_NUMBER + int.from_bytes(digest[:4], "big") % NUMBERS


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
    try:
        found.append(await _engine(engine))
        if not found[0].ok:
            return tuple(found)
        environment = dict((await find_image(engine, image)).environment)
        tools = await ask_image(engine, image)
    except SandboxError as error:
        part = "image" if found else "engine"
        repair = error.hint or START[engine.name]
        return (*found, DoctorCheck(part, ok=False, detail=error.message, repair=repair))
    image_check = _image(engine, image, tools)
    if not image_check.ok:
        return (*found, image_check)
    python = next(word.partition(":")[2] for word in tools if word.startswith("interpreter:"))
    home = engine.environment.get("HOME", "")
    private = (*((f"{home}/.ssh", f"{home}/.config") if home else ()), *SOCKETS)
    variables = {*WORK_ENVIRONMENT, *environment}
    context = ProbeContext(python, private, frozenset(variables))
    proofs = await attacks(launch, context)
    return (*found, image_check, *(_with_repair(proof) for proof in proofs))


async def _engine(engine: ContainerEngine) -> DoctorCheck:
    version = await engine.version()
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    oldest = OLDEST[engine.name]
    form = "json" if engine.name == "podman" else "{{json .}}"
    engine_info = json.loads(await engine.run("info", "--format", form, action="asking it"))
    detail = f"{engine.title} {version}{_rootless_note(engine_info)}"
    repair = "" if numbers >= oldest else f"It must be {'.'.join(map(str, oldest))} or newer. {INSTALL[engine.name]}"
    return DoctorCheck("engine", ok=numbers >= oldest, detail=detail, repair=repair)


def _rootless_note(engine_info: Mapping[str, object]) -> str:
    """Whether the engine runs as root, which it reports in one of two ways."""
    text = json.dumps([engine_info.get("SecurityOptions"), engine_info.get("host")])
    rootless = "name=rootless" in text or '"rootless": true' in text
    return ", rootless" if rootless else ", as root: a rootless engine would isolate better"


def _image(engine: ContainerEngine, image: str, tools: frozenset[str]) -> DoctorCheck:
    lacks = missing_tools(tools)
    if not lacks:
        return DoctorCheck("image", ok=True, detail=image)
    repair = f"Install it in your own image, or use another one. {missing_image_hint(engine, image)}"
    return DoctorCheck("image", ok=False, detail=f"{image} lacks {', '.join(lacks)}", repair=repair)


def _with_repair(proof: DoctorCheck) -> DoctorCheck:
    if proof.ok or proof.name == "start":
        return proof
    return replace(proof, repair=REPAIRS.get(proof.name, REPAIRS[""]))


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
        self._environment = environment

    async def check(self) -> tuple[DoctorCheck, ...]:
        return await checks(self._engine, self._image, self.launch)

    async def open(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Raises SandboxError if an essential property does not hold; there is no silent fallback."""
        return await proven(await self.launch(spec, on_output=on_output))

    async def launch(self, spec: SandboxSpec, *, on_output: OnOutput | None = None) -> Sandbox:
        """Open without the check of its properties; for the doctor."""
        check_key(spec.key)
        builder = await self._image_builder()
        machine = ContainerMachine(self._engine, self._wanted(spec).name)
        result = await self._reopen(machine, spec)
        if result is None:
            result = await self._create(builder, spec, on_output)
        planned = dict(spec.setup.environment)
        usable_variables = {name: value for name, value in planned.items() if name not in CERTIFICATE_VARIABLES}
        environment = {**builder.image.variables(), **usable_variables, **WORK_ENVIRONMENT}
        return MachineSandbox(
            machine, spec.key, spec.limits, environment, result=result, model_socket=spec.model_socket
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
        return ImageBuilder(self._engine, self._found, self._scope, self._marks, self._environment)

    def _wanted(self, spec: SandboxSpec, image: str = "") -> ContainerSpec:
        digest = hashlib.sha256(f"{self._scope} {spec.key}".encode()).hexdigest()[:24]
        return ContainerSpec(
            f"agent-fix-{digest}", self._scope, spec.key, image, spec.limits, quota=self._engine.name == "docker"
        )

    async def _reopen(self, machine: ContainerMachine, spec: SandboxSpec) -> SetupResult | None:
        """What is known of the set-up of this key's container, if it was completed; an incomplete one is removed."""
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
            result = await reopen(machine, HIDE_NAMES)
            if result is not None:
                return result
            logger.warning("the sandbox %s was never finished; it is created again", spec.key)
        await self._engine.remove(wanted.name)
        return None

    async def _create(self, builder: ImageBuilder, spec: SandboxSpec, on_output: OnOutput | None) -> SetupResult:
        image = builder.image.name
        without_project = replace(spec, fill=lambda _: None)  # an agent's programs need no project
        image = await builder.image_with(image, without_project, spec.tools, target=TOOLS, on_output=on_output)
        image = await builder.image_with(image, spec, spec.setup, on_output=on_output)
        wanted = self._wanted(spec, image)
        async with packing_tree(spec.begin_work) as tree, builder.new_container(wanted) as machine:
            result = await fill(machine, wanted, f"{FILL}{FINISH}", tree)
            if spec.model_socket is not None:
                await machine.upload(FORWARDER, FORWARDER_PROGRAM.read_bytes())
        return parse_result(result)
