"""`agent-fix setup`: finds how a repository is set up and tested, by trying it in the sandbox; costs no model call."""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import yaml

from app.cli.fix import read_config
from app.cli.local_context import LocalContext
from app.config.repository import SOURCE
from app.config.settings import Settings, read_settings
from app.core.errors import AgentFixError, ExitCode, SetupError
from app.core.job import ProgressKind
from app.core.text import one_line
from app.pipeline.wiring.project_setup import ChosenSetup, ProjectSetup, SetupProject
from app.pipeline.wiring.sandboxes import make_provider, setup_tools
from app.repo.inspection import RepositoryInspection, inspect, notes_about_contents, top_level
from app.sandbox.setup.ecosystems.python import is_environment_creation
from app.verify.trials import Trial, TrialLimits

SHOWN = 200


def setup_command(arguments: argparse.Namespace) -> int:
    settings = read_settings(arguments.state)
    context = LocalContext(settings)
    context.prepare()
    store = context.mirror(top_level(arguments.repo.expanduser().absolute()))
    inspected = inspect(arguments.repo.expanduser().absolute(), arguments.base, store)
    report = asyncio.run(_examine(arguments, settings, context, inspected))
    if arguments.json:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print("\n".join(report.lines(explain=arguments.explain)))
    if arguments.write and report.works:
        print(_write(inspected.root, report), file=sys.stderr)
    return ExitCode.OK if report.works else ExitCode.SETUP_FAILED


@dataclass(frozen=True, slots=True)
class SetupReport:
    """What was found; `chosen` is None where nothing could be set up."""

    chosen: ChosenSetup | None
    seconds: float
    notes: tuple[str, ...] = ()

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
    def test(self) -> str:
        return self.chosen.suite.command if self.chosen and self.chosen.suite else ""

    @property
    def reasons(self) -> list[str]:
        trials = self.chosen.trials if self.chosen else ()
        tried_candidates = [f"{trial.candidate.name}: {trial.reason or trial.candidate.reason}" for trial in trials]
        if self.works and not self.comparable:
            tried_candidates[0] = f"Only its exit code is known. {tried_candidates[0]}"
        left_out = [one_line(text) for trial in trials[:1] for text in trial.left_out]
        return [*tried_candidates, *left_out, *(self.chosen.plan.notes if self.chosen else ()), *self.notes]

    def as_json(self) -> dict[str, Any]:
        count = self.best.count if self.best else None
        return {
            "candidate": self.best.candidate.name if self.best else "",
            "setup": self.commands,
            "test": self.test,
            "passed": count.passed if count else 0,
            "failed": count.failed if count else 0,
            "not_run": count.skipped if count else 0,
            "comparable": self.comparable,
            "seconds": round(self.seconds, 1),
            "reasons": self.reasons,
        }

    def lines(self, *, explain: bool) -> Iterator[str]:
        best = self.best
        if best is None:
            yield "No set-up works here."
        else:
            count = best.count
            yield f"{best.candidate.name}: {best.candidate.reason}"
            numbers = f"{count.passed} tests pass, {count.failed} fail, {count.skipped} are not run"
            only_code = "its tests pass; only their exit code is known"
            yield f"  {only_code if self.works and not self.comparable else numbers}; {best.seconds:.0f} s"
            if best.reason:
                yield f"  {best.reason}"
        yield "setup:"
        yield from (f"  - {command if explain else one_line(command)[:SHOWN]}" for command in self.commands)
        yield f"test: {self.test}"
        if explain or not self.comparable:
            yield "Tried, the best first:"
            yield from (f"  - {reason}" for reason in self.reasons)


async def _examine(
    arguments: argparse.Namespace, settings: Settings, context: LocalContext, inspected: RepositoryInspection
) -> SetupReport:
    started = monotonic()
    config = read_config(inspected, settings.defaults)
    store = context.mirror(inspected.root)
    name = arguments.sandbox or settings.sandbox
    commit = inspected.base_commit
    with TemporaryDirectory(prefix="setup-") as key:
        setup = ProjectSetup(
            SetupProject(
                inspected.tree,
                lambda: store.date(commit).date(),
                str(inspected.root),
                test=config.test,
                network=config.network,
            ),
            make_provider(name, settings),
            lambda: setup_tools(name, settings),
            lambda directory: store.checkout(commit, directory),
            Path(key).name,
            _Stderr(quiet=arguments.json),
            memory=None,
            limits=TrialLimits(total=arguments.seconds, suite=arguments.seconds),
            trials="always",
        )
        notes = notes_about_contents(inspected.tree)
        try:
            chosen = await setup.chosen()
        except SetupError as error:
            return SetupReport(None, monotonic() - started, (error.message, *notes))
    return SetupReport(chosen, monotonic() - started, notes)


@dataclass(frozen=True, slots=True)
class _Stderr:
    """Progress for people, beside the result on stdout."""

    quiet: bool

    def report(self, kind: ProgressKind, text: str) -> None:
        if not self.quiet and kind in {"note", "verification"}:
            print(one_line(text), file=sys.stderr)


def _write(root: Path, report: SetupReport) -> str:
    """Add the keys to the repository's configuration; what is written there already stays."""
    path = root / SOURCE
    before = path.read_text("utf-8") if path.exists() else ""
    present = yaml.safe_load(before) if before.strip() else {}
    if not isinstance(present, dict) or {"setup", "test"} & present.keys():
        raise AgentFixError(f"{path} has `setup:` or `test:` already.", hint="Remove these keys, then try again.")
    lines = yaml.safe_dump({"setup": report.commands, "test": report.test}, sort_keys=False, width=10_000)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before + ("" if before.endswith("\n") or not before else "\n") + lines, "utf-8")
    return f"Written to {path}."
