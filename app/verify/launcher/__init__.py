"""Programs that run chosen tests inside a sandbox and report where the tested code cannot write; one by framework."""

from collections.abc import Mapping, Sequence

from app.verify.frameworks import SuiteCommand
from app.verify.launcher.base import Launcher
from app.verify.launcher.compiled import CargoLauncher, GoLauncher
from app.verify.launcher.python import PythonLauncher
from app.verify.launcher.replay_text import needs_own_file
from app.verify.launcher.script import ScriptLauncher


def launcher_of(suite: SuiteCommand) -> Launcher:
    """Raises ValueError if the suite's framework cannot run chosen tests."""
    if suite.framework in ("pytest", "unittest"):
        return PythonLauncher.of(suite)
    if suite.framework in ("node", "vitest", "jest", "mocha"):
        return ScriptLauncher(suite)
    if suite.framework == "go" and suite.narrowed:
        return GoLauncher(suite)
    if suite.framework == "cargo" and suite.narrowed:
        return CargoLauncher(suite)
    raise ValueError(f"the harness cannot run single {suite.framework} tests")


def left_to_framework(suite: SuiteCommand, ids: Sequence[str], contents: Mapping[str, bytes]) -> tuple[str, ...]:
    """If none of these Python tests can be called without their framework: those for which their own file says so."""
    launcher = launcher_of(suite)
    if not isinstance(launcher, PythonLauncher) or launcher.replay(ids, contents, 0) is not None:
        return ()
    places = launcher.places(ids, contents)
    return tuple(name for name, place in places.items() if needs_own_file(place, contents[place.path]))
