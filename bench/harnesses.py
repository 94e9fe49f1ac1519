"""Who is compared: how each is started on a task with one address for its model, and what version it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path, PurePosixPath

from bench.endpoint import MODEL
from bench.ground import COMMAND
from bench.installs import MINI, OPENHANDS

KEY = "sk-bench"
_OPENHANDS_SCRIPT = Path(__file__).with_name("openhands_agent.py")


@dataclass(frozen=True, slots=True)
class HarnessPlace:
    """Where one harness performs: a directory of its own with the checkout in it."""

    root: Path
    url: str
    steps: int

    @property
    def checkout(self) -> Path:
        return self.root / "checkout"

    @property
    def task(self) -> Path:
        return self.root / "task.md"


@dataclass(frozen=True, slots=True)
class Launch:
    """A command line, its environment over the project's, and the exit codes that are no failure."""

    argv: list[str]
    environment: Mapping[str, str]
    codes: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class Harness:
    """`prepare` says its version, or raises NotInstalledError."""

    name: str
    prepare: Callable[[], str]
    launch: Callable[[HarnessPlace], Launch]
    workspace: Callable[[HarnessPlace], PurePosixPath]


def ours(state: Path) -> Harness:
    """`agent-fix fix` as users start it, with plan and verification; `state` is shared, so set-up happens once."""

    def launch(stand: HarnessPlace) -> Launch:
        places = {"--repo": stand.checkout, "--issue": stand.task, "--state": state, "--out": stand.root / "out"}
        limits = ["--max-steps", str(stand.steps + 3), "--max-minutes", "600", "--budget", "1000"]
        argv = [str(COMMAND), "fix", "--restart", "--model", MODEL, *limits]
        argv += [part for name, place in places.items() for part in (name, str(place))]
        home = {"HOME": str(stand.root), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return Launch(argv, home | _address(stand), (0, 20, 21, 22))

    return Harness("agent-fix", lambda: version("agent-fix"), launch, lambda _: PurePosixPath("/workspace"))


def mini() -> Harness:
    def launch(stand: HarnessPlace) -> Launch:
        argv = [str(MINI.programs / "mini"), "-y", "--exit-immediately", "-m", MODEL, "-l", "0"]
        argv += ["-t", stand.task.read_text(), "-o", str(stand.root / "trajectory.json")]
        quiet = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}
        home = {"HOME": str(stand.root), "XDG_CONFIG_HOME": str(stand.root), "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        return Launch(argv, quiet | home | _address(stand))

    return Harness(MINI.name, lambda: MINI.install().version("mini-swe-agent"), launch, _checkout)


def openhands() -> Harness:
    """The SDK with its default agent, which has a condenser."""

    def launch(stand: HarnessPlace) -> Launch:
        argv = [str(OPENHANDS.programs / "python"), str(_OPENHANDS_SCRIPT), str(stand.task), str(stand.checkout)]
        home = {"HOME": str(stand.root), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OTEL_SDK_DISABLED": "true"}
        return Launch([*argv, MODEL, stand.url, KEY], home)

    return Harness("OpenHands SDK", lambda: OPENHANDS.install().version("openhands-sdk"), launch, _checkout)


def _checkout(stand: HarnessPlace) -> PurePosixPath:
    return PurePosixPath(stand.checkout)


def _address(stand: HarnessPlace) -> dict[str, str]:
    return {"OPENAI_API_BASE": stand.url, "OPENAI_API_KEY": KEY}
