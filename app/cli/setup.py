"""`agent-fix setup`: finds how a repository is set up and tested, by trying it in the sandbox; costs no model call."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import yaml

from app.cli.fix import read_config
from app.cli.init import path_in, write_file
from app.cli.local_context import LocalContext
from app.config.repository import SOURCE, RepoConfig, parse_config
from app.config.settings import Settings, read_settings
from app.core.errors import AgentFixError, ConfigError, ExitCode, OutputError, SetupError
from app.core.job import Budget, ProgressKind
from app.core.text import one_line, plain
from app.core.yaml_and_toml import read_yaml
from app.pipeline.wiring.project_setup import ChosenSetup, ProjectSetup, SetupProject
from app.pipeline.wiring.sandboxes import make_provider, setup_tools
from app.repo.inspection import RepositoryInspection, inspect, notes_about_contents, top_level
from app.sandbox.setup.ecosystems.python import is_environment_creation
from app.sandbox.setup.run_commands import RUNNING
from app.verify.candidates import CLEAR, Trial, TrialLimits

SHOWN = 300
WIDTH = 160
EVERY_SECONDS = 5.0


def setup_command(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.state)
    context = LocalContext(settings)
    context.prepare()
    store = context.mirror(top_level(arguments.repo.expanduser().absolute()))
    inspected = inspect(arguments.repo.expanduser().absolute(), arguments.base, store)
    config = read_config(inspected, settings.defaults)
    if arguments.write and (config.setup is None or config.test is None):  # refused now, not after the trials
        configuration_with(inspected.root, {"setup": []} if config.test else {"test": "true"})
    report = asyncio.run(_examine(arguments, settings, context, inspected, config))
    if arguments.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print("\n".join(report.lines(explain=arguments.explain)))
    if arguments.write and report.works:
        print(write_configuration(inspected.root, report), file=sys.stderr)
    return ExitCode.OK if report.works else ExitCode.SETUP_FAILED


@dataclass(frozen=True, slots=True)
class SetupReport:
    """What was found; `chosen` is None if nothing could be set up."""

    chosen: ChosenSetup | None
    seconds: float
    notes: tuple[str, ...] = ()
    keeps_setup: bool = False
    """Whether the short lines of the set-up were tried as shown, and are as good."""
    configured: frozenset[str] = frozenset()
    """Which of `setup` and `test` the configuration has."""

    @property
    def best(self) -> Trial | None:
        return self.chosen.trials[0] if self.chosen and self.chosen.trials else None

    @property
    def works(self) -> bool:
        """Whether the suite passes as far as is known, if only by its exit code."""
        return self.best is not None and self.best.comparable

    @property
    def comparable(self) -> bool:
        """Whether single tests can be compared too."""
        return self.best is not None and self.works and self.best.count.passed > 0

    @property
    def commands(self) -> list[str]:
        """What `setup:` would say: the virtual environment is made before these."""
        plan = self.chosen.plan if self.chosen else None
        return [command for command in plan.commands if not is_environment_creation(command)] if plan else []

    @property
    def short(self) -> list[str]:
        """The same as a person writes it."""
        plan = self.chosen.plan if self.chosen else None
        return [command for command in plan.short if not is_environment_creation(command)] if plan else []

    @property
    def test(self) -> str:
        return self.chosen.suite.command if self.chosen and self.chosen.suite else ""

    @property
    def judged(self) -> list[str]:
        """What each candidate ran, and what speaks for or against it, the best first."""
        trials = self.chosen.trials if self.chosen else ()
        return [f"{one.candidate.name}: {one.ran}. {one.reason or one.candidate.reason}" for one in trials]

    @property
    def noted(self) -> list[str]:
        """What was left out, and what is particular about the repository."""
        suite = self.best.candidate.suite if self.best else None
        left_out = self.best.left_out if self.best else ()
        notes = (suite.note if suite else "", *left_out, *(self.chosen.plan.notes if self.chosen else ()), *self.notes)
        return [one_line(text) for text in notes if text]

    def as_json(self) -> dict[str, Any]:
        count = self.best.count if self.best else None
        return {
            "candidate": self.best.candidate.name if self.best else "",
            "setup": self.short,
            "test": self.test,
            "passed": count.passed if count else 0,
            "failed": count.failed if count else 0,
            "not_run": count.skipped if count else 0,
            "comparable": self.comparable,
            "by_exit_code": self.best is not None and self.best.by_exit_code,
            "candidates": [one.as_json() for one in self.chosen.trials] if self.chosen else [],
            "stopped": self.best is not None and self.best.stopped,
            "seconds": round(self.seconds, 1),
            "reasons": [*self.judged, *self.noted],
        }

    def lines(self, *, explain: bool) -> Iterator[str]:
        """What a person reads: the result first, then what was executed, then what to do."""
        best = self.best
        if best is None:
            yield "No set-up works here."
        else:
            yield f"{self._outcome(best)} ({best.seconds:.0f} s)."
            yield ""
            yield f"  chosen  {best.candidate.reason}"
            for command in (self.commands if explain else self.short) or ("nothing to install",):
                yield f"  set-up  {_first_line(command) if explain else _line(command)}"
            yield f"  tests   {self.test}"
        yield from (f"  note    {_line(text)}" for text in self.noted)
        yield ""
        if self.judged and (explain or not self.comparable):
            yield "Tried, the best first:"
            yield from (f"  - {reason if explain else _line(reason)}" for reason in self.judged)
        if self.works and "setup" in self.configured:
            yield f"This is what {SOURCE} says, and what a job does."
        elif self.works:
            yield f"agent-fix finds this by itself. --write keeps it in {SOURCE}, --explain shows every command."
        elif best is not None and best.too_long:
            yield f"The suite needs more time: give --seconds, or a `test:` in {SOURCE} that runs a part of it."
        else:
            yield f"Write `setup:` and `test:` into {SOURCE}, as you would type them here."

    def _outcome(self, best: Trial) -> str:
        count = best.count
        if self.works and not self.comparable:
            return "The tests pass; single ones are not known, only the exit code"
        if not count.passed + count.failed and not best.stopped:
            return best.reason.rstrip(".") or "No test ran"
        skipped = f", {count.skipped} more are skipped" if count.skipped else ""
        stopped = ", until the suite was stopped at its limit" if best.stopped else ""
        return f"{count.passed} of {count.passed + count.failed} tests pass{skipped}{stopped}"


def _line(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= SHOWN else f"{line[:SHOWN]}… ({len(line) - SHOWN:,} more characters: --explain)"


def _first_line(command: str) -> str:
    """A command as it is, or the start of one that holds a program."""
    first, *others = command.splitlines()
    return f"{first} (… {len(others)} more lines: --json)" if others else first


async def _examine(
    arguments: argparse.Namespace,
    settings: Settings,
    context: LocalContext,
    inspected: RepositoryInspection,
    config: RepoConfig,
) -> SetupReport:
    started = monotonic()
    store = context.mirror(inspected.root)
    name = arguments.sandbox or settings.sandbox
    commit = inspected.base_commit
    budget = config.budget.over(Budget(usd=settings.budget))
    limits = TrialLimits.of_job(budget) if config.setup is None else TrialLimits(suite=budget.suite_seconds)
    if arguments.seconds is not None:
        limits = TrialLimits(total=arguments.seconds, suite=arguments.seconds)
    configured = frozenset(name for name in ("setup", "test") if getattr(config, name) is not None)
    with TemporaryDirectory(prefix="setup-") as key:
        setup = ProjectSetup(
            SetupProject(
                inspected.tree,
                lambda: store.date(commit).date(),
                str(inspected.root),
                config.setup,
                config.test,
                config.network,
                config.build,
            ),
            make_provider(name, settings),
            lambda: setup_tools(name, settings),
            lambda directory: store.checkout(commit, directory),
            Path(key).name,
            _Stderr(),
            memory=None,
            limits=limits,
            on_output=RunningCommand().show,
            trials="always",
        )
        notes = notes_about_contents(inspected.tree)
        try:
            chosen = await setup.chosen()
        except SetupError as error:
            return SetupReport(None, monotonic() - started, (error.message, *notes), configured=configured)
        report = SetupReport(chosen, monotonic() - started, notes, configured=configured)
        if not (arguments.write and report.works) or "setup" in configured:
            return report
        return replace(report, keeps_setup=await _does_as_well(setup, report))


async def _does_as_well(setup: ProjectSetup, report: SetupReport) -> bool:
    """Whether the set-up's short lines, as a configuration, let as many tests pass."""
    best = report.best
    if report.chosen is None or best is None:
        return False
    try:
        trial = await setup.try_lines(report.chosen.plan.short, report.test)
    except SetupError:
        return False
    return trial.comparable and trial.count.passed >= CLEAR * best.count.passed


@dataclass(frozen=True, slots=True)
class _Stderr:
    """Progress for people, beside the result on stdout."""

    def report(self, kind: ProgressKind, text: str) -> None:
        if kind in {"note", "verification"}:
            print(one_line(text), file=sys.stderr, flush=True)


@dataclass(slots=True)
class RunningCommand:
    """The output of a set-up on stderr: the command, and its last line once in a while."""

    _shown: float = 0.0

    def show(self, output: bytes) -> None:
        lines = [line for line in plain(output.decode(errors="replace")).splitlines() if line.strip()]
        now = monotonic()
        if lines and (lines[-1].startswith(RUNNING) or now - self._shown >= EVERY_SECONDS):
            self._shown = now
            print(f"  {one_line(lines[-1])[:WIDTH]}", file=sys.stderr, flush=True)


def configuration_with(root: Path, added: dict[str, object]) -> bytes:
    """The work tree's configuration with these keys at its end. Raises OutputError if it cannot be read or written,
    ConfigError if it is invalid or not of a form to which lines can be added, AgentFixError if it has such keys."""
    path = path_in(root, SOURCE)
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror}.") from error
    parse_config(before)
    if there := [f"`{name}:`" for name in added if (name,) in read_yaml(before).lines]:
        names = " and ".join(there)
        raise AgentFixError(f"{path} has {names} already.", hint="Remove what it has, then try again.")
    lines = yaml.safe_dump(added, sort_keys=False, width=10_000)
    content = before + (b"" if before.endswith(b"\n") or not before else b"\n") + lines.encode()
    try:
        parse_config(content)
    except ConfigError as error:
        hint = "Write it as lines `key: value` without indentation, braces around them or `...` at the end."
        raise ConfigError(f"{path} cannot be added to: {error.message}", hint=hint) from error
    return content


def write_configuration(root: Path, report: SetupReport) -> str:
    """Add the keys to the repository's configuration; what is written there already stays. Raises as
    `configuration_with`."""
    path = root / SOURCE
    setup = report.short if report.keeps_setup else None
    found: dict[str, object] = {**({"setup": setup} if setup is not None else {}), "test": report.test}
    added = {name: value for name, value in found.items() if name not in report.configured}
    if not added:
        return f"Nothing is written to {path}: it has what was found."
    write_file(root, SOURCE, configuration_with(root, added))
    if setup is None and "setup" not in report.configured:
        return (
            f"Written to {path}: `test:` only. Short lines for the set-up do not do as well, so it is found each time."
        )
    return f"Written to {path}, after these lines gave the same result."
