"""A job's set-up and suite: what the configuration says, what was found to work before, else what trials find."""

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Literal

from app.agent.actions import MalformedError, read_object
from app.agent.prompts import render
from app.core.errors import SetupError
from app.core.job import Progress
from app.core.patch import Tree
from app.core.record import StrictRecord
from app.core.text import head_and_tail, one_line, plain
from app.core.verification import SuiteResult
from app.llm.base import Message, ModelAnswer, ModelRequest
from app.llm.errors import BudgetError, ModelError
from app.pipeline.wiring.sandboxes import SetupTools
from app.sandbox.base import OnOutput, Sandbox, SandboxProvider, SandboxSpec, SetupPlan
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.sandbox.setup.manifests import ManifestFiles
from app.sandbox.setup.plan import is_manifest, plan_setup
from app.sandbox.workspaces import with_source_times
from app.verify.candidates import Candidate, Surroundings, Trial, TrialLimits, candidates, try_candidates
from app.verify.detect import find_suite
from app.verify.frameworks import SuiteCommand
from app.verify.project import build

MAX_COMMANDS = 12
_MAX_COMMAND_LENGTH = 2_000
_ANSWER_TOKENS = 2_000
_MAX_FILES = 12
_MAX_FILE_LENGTH = 2_500
_MAX_OUTPUT_LENGTH = 1_500
_MAX_PATHS = 150
_MAX_NAMED = 3


class ProposedSetup(StrictRecord):
    """Commands as `setup:` and `test:` would have them."""

    setup: tuple[str, ...] = ()
    test: str


Ask = Callable[[ModelRequest], Awaitable[ModelAnswer]]


async def propose_setup(ask: Ask, tree: Tree, trials: Sequence[Trial]) -> ProposedSetup | None:
    """None if the answer has no test command. Raises ModelError or BudgetError if there is no answer."""
    messages = (Message(role="system", content=render("setup")), Message(role="user", content=_material(tree, trials)))
    schema = {
        "type": "object",
        "properties": {"setup": {"type": "array", "items": {"type": "string"}}, "test": {"type": "string"}},
        "required": ["setup", "test"],
        "additionalProperties": False,
    }
    request = ModelRequest(messages=messages, schema_name="setup", response_schema=schema, max_tokens=_ANSWER_TOKENS)
    return read_proposal((await ask(request)).content)


def read_proposal(text: str) -> ProposedSetup | None:
    """The commands in a model's answer; None if they cannot be used."""
    try:
        found = read_object(text)[0]
    except MalformedError:
        return None
    listed = found.get("setup")
    commands = [found.get("test"), *(listed if isinstance(listed, list) else [])]
    if not all(isinstance(command, str) and len(command) <= _MAX_COMMAND_LENGTH for command in commands):
        return None
    test, *setup = (plain(command).strip() for command in commands)
    if not test or "\n" in test or len(setup) > MAX_COMMANDS:
        return None
    return ProposedSetup(setup=tuple(filter(None, setup)), test=test)


def _material(tree: Tree, trials: Sequence[Trial]) -> str:
    """The tree's top, its manifests, and what was tried."""
    files = ManifestFiles(tree)
    shallow = sorted(files, key=lambda path: (path.count("/"), path))
    manifests = [path for path in shallow if is_manifest(path) and "lock" not in path][:_MAX_FILES]
    parts = [("Files", "\n".join(shallow[:_MAX_PATHS]))]
    parts += [(path, head_and_tail(files.text(path), _MAX_FILE_LENGTH)) for path in manifests]
    parts += [(f"Tried: {one_line(trial.candidate.reason)}", _trial_text(trial)) for trial in trials]
    return "\n\n".join(f"# {title}\n\n{text}" for title, text in parts)


def _trial_text(trial: Trial) -> str:
    suite = trial.candidate.suite
    output = trial.result.execution.excerpt if trial.result else ""
    count = f"{trial.count.passed} tests passed, {trial.count.failed} failed"
    return "\n".join(
        [f"`{suite.command}`: {count}." if suite else "", trial.reason, head_and_tail(output, _MAX_OUTPUT_LENGTH)]
    ).strip()


FORMAT = 2
"""Raised when older choices are not to be used any more."""
PROPOSED = "proposal"
Propose = Callable[[Sequence[Trial]], Awaitable[ProposedSetup | None]]
"""A model's own way to set the project up, after those trials."""


class CachedChoice(StrictRecord):
    """What trials showed: the best candidate with its outcome, and its commands if a model proposed it.

    If none was good: those that took all their time for nothing, and whether a model was asked.
    """

    candidate: str = ""
    outcome: str = ""
    proposal: ProposedSetup | None = None
    too_long: tuple[str, ...] = ()
    had_proposal: bool = False


@dataclass(frozen=True, slots=True)
class ChosenSetup:
    """What a job works with. `base` is the suite's result on the base if it was just measured.

    `sentence` tells people what was chosen and why; `trials` are all that were made, the best first.
    """

    plan: SetupPlan
    suite: SuiteCommand | None
    base: SuiteResult | None = None
    sentence: str = ""
    trials: tuple[Trial, ...] = ()


@dataclass(frozen=True, slots=True)
class SetupProject:
    """The project that is set up: its base tree, when that was committed (blocking), and what its configuration says.

    `scope` names whose code may prepare a result for whom (`plan_setup`).
    """

    tree: Tree
    committed: Callable[[], date]
    scope: str
    setup: Sequence[str] | None = None
    test: str | None = None
    network: Sequence[str] = ()
    build: str | None = None


@dataclass(slots=True)
class ProjectSetup:
    """Finds the set-up once; everybody who asks gets the same answer.

    `fill` writes the base tree into a directory. `key` names the sandboxes of the trials. `memory` is the directory
    in which choices are kept, by a hash of what they were made from; None keeps nothing.
    """

    project: SetupProject
    provider: SandboxProvider
    tools: Callable[[], Awaitable[SetupTools]]
    fill: Callable[[Path], None]
    key: str
    progress: Progress
    memory: Path | None
    limits: TrialLimits = field(default_factory=TrialLimits)
    on_output: OnOutput | None = None
    trials: Literal["always", "to choose", "never"] = "to choose"
    """`never` if no suite can be run on the base: the most likely candidate is taken."""
    propose: Propose | None = None
    """Asked once if a set-up is possible, and the suite still cannot be compared."""
    _possible: asyncio.Event = field(default_factory=asyncio.Event)
    _chosen: "asyncio.Future[ChosenSetup] | None" = None

    async def chosen(self) -> ChosenSetup:
        """Raises SetupError if no candidate can be set up."""
        if self._chosen is None:
            self._chosen = asyncio.ensure_future(self._choose())
        return await asyncio.shield(self._chosen)

    async def possible(self) -> None:
        """Wait until a set-up is known to be possible; its suite may still be running. Raises SetupError otherwise."""
        chosen = asyncio.ensure_future(self.chosen())
        possible = asyncio.ensure_future(self._possible.wait())
        try:
            await asyncio.wait({chosen, possible}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            possible.cancel()
        if self._possible.is_set():
            return
        plan = (await chosen).plan
        if plan.commands:
            async with self._open("possible", plan):
                self._possible.set()

    async def _choose(self) -> ChosenSetup:
        tools = await self.tools()
        project = self.project
        if project.setup is not None:
            return await self._configured(await self._plan(tools, SetupChoice()))
        committed = await asyncio.to_thread(project.committed)
        today = datetime.now(UTC).date()
        environment = Surroundings(tools.pythons, tools.version, committed, today, tools.node, tools.nodes)
        found = await asyncio.to_thread(candidates, project.tree, environment, project.test)
        plans = await self._distinct(tools, found)
        path = self._cache_path(tools)
        cached = _remembered(path)
        if cached.proposal is not None:
            plans.update(dict([await self._proposed(tools, cached.proposal, plans)]))
        known = next((one for one in plans if one.name == cached.candidate), None)
        if known is None and (self.trials == "never" or (self.trials == "to choose" and len(plans) == 1)):
            known = next(iter(plans))
        if known is not None:
            sentence = _sentence(known, cached.outcome) if cached.outcome else ""
            return ChosenSetup(plans[known], known.suite, sentence=sentence)
        trials, choice = await self._try_all(tools, plans, cached)
        _remember(path, choice)
        best, result = trials[0].candidate, trials[0].result
        # What several processes gave is not compared with a head that one process runs.
        alone = best.suite is None or not best.suite.parallel
        whole = result if result is not None and not result.execution.timed_out and alone else None
        return ChosenSetup(plans[best], best.suite, whole, _sentence(best, _outcome(trials)), tuple(trials))

    async def _configured(self, plan: SetupPlan) -> ChosenSetup:
        suite = await asyncio.to_thread(find_suite, self.project.tree, self.project.test)
        if self.trials != "always":
            return ChosenSetup(plan, suite)
        candidate = Candidate("configuration", "what the configuration says", 0, SetupChoice(), suite)
        trials = await self._try([candidate], {candidate: plan})
        return ChosenSetup(plan, suite, trials=tuple(trials))

    async def _try_all(
        self, tools: SetupTools, plans: dict[Candidate, SetupPlan], cached: CachedChoice
    ) -> tuple[list[Trial], CachedChoice]:
        """Every trial, the best first, and what later jobs are to know of them. A proposal is added to `plans`."""
        found = [one for one in plans if one.name not in cached.too_long] or list(plans)
        trials = await self._try(found, plans)
        had_proposal, proposal = cached.had_proposal, None
        if self.propose is not None and not (had_proposal or trials[0].comparable or trials[0].too_long):
            with suppress(ModelError, BudgetError):  # without an answer this job continues, and the next one asks again
                proposal = await self._try_proposal(self.propose, tools, trials, plans)
                had_proposal = True
        if not trials[0].comparable and not trials[0].too_long:
            too_long = {*cached.too_long, *(one.candidate.name for one in trials if one.too_long)}
            return trials, CachedChoice(too_long=tuple(sorted(too_long)), had_proposal=had_proposal)
        best = trials[0].candidate.name
        chosen = proposal if best == PROPOSED else None
        return trials, CachedChoice(candidate=best, outcome=_outcome(trials), proposal=chosen)

    async def _try(self, found: Sequence[Candidate], plans: Mapping[Candidate, SetupPlan]) -> list[Trial]:
        """Every trial, the best first. Raises SetupError if nothing can be set up."""
        return await try_candidates(
            found,
            lambda one: self._open(one.name, plans[one], self.project.build),
            self.limits,
            self.progress,
            self._possible.set,
        )

    async def _try_proposal(
        self, propose: Propose, tools: SetupTools, trials: list[Trial], plans: dict[Candidate, SetupPlan]
    ) -> ProposedSetup | None:
        """Try the set-up that a model proposed.

        It goes first if more individual tests pass with it; if only an exit code is known, the order stays.
        """
        proposal = await propose(tuple(trials))
        if proposal is None:
            return None
        candidate, plan = await self._proposed(tools, proposal, plans)
        plans[candidate] = plan
        try:
            (trial,) = await self._try([candidate], plans)
        except SetupError as error:
            self.progress.report("note", f"set-up: {candidate.name}: {one_line(error.message)[:400]}")
            return proposal
        better = trial.comparable and trial.count.passed > trials[0].count.passed
        trials.insert(0 if better else len(trials), trial)
        return proposal

    async def try_lines(self, setup: Sequence[str], test: str) -> Trial:
        """What these lines of a configuration give. Raises SetupError if nothing can be set up with them."""
        tools = await self.tools()
        plan = await self._plan(tools, SetupChoice(), setup)
        suite = await asyncio.to_thread(find_suite, self.project.tree, test)
        candidate = Candidate("lines", "the lines for the configuration", 0, SetupChoice(), suite)
        (trial,) = await self._try([candidate], {candidate: plan})
        return trial

    async def _proposed(
        self, tools: SetupTools, proposal: ProposedSetup, others: Collection[Candidate]
    ) -> tuple[Candidate, SetupPlan]:
        suite = await asyncio.to_thread(find_suite, self.project.tree, self.project.test or proposal.test)
        known = {one.suite.command for one in others if one.suite}
        suite = replace(suite, proposed=not self.project.test and suite.command not in known) if suite else None
        commands = "; ".join(f"`{one_line(command)}`" for command in proposal.setup) or "nothing to install"
        reason = f"what a model proposed after others had failed ({commands})"
        plan = await self._plan(tools, SetupChoice(), proposal.setup)
        return Candidate(PROPOSED, reason, 0, SetupChoice(), suite), plan

    async def _distinct(self, tools: SetupTools, found: Sequence[Candidate]) -> dict[Candidate, SetupPlan]:
        """The candidates that differ in what is executed, with their set-ups."""
        plans: dict[Candidate, SetupPlan] = {}
        seen = set[tuple[str, str]]()
        for one in found:
            plan = await self._plan(tools, one.choice)
            same = (plan.key, one.suite.command if one.suite else "")
            if same not in seen:
                seen.add(same)
                plans[one] = plan
        return plans

    async def _plan(self, tools: SetupTools, choice: SetupChoice, commands: Sequence[str] | None = None) -> SetupPlan:
        return await plan_setup(
            self.project.tree,
            commands=self.project.setup if commands is None else commands,
            extra_hosts=self.project.network,
            clients=tools.clients,
            python=tools.python,
            scope=self.project.scope,
            find_tool=tools.find_tool,
            choice=choice,
        )

    @asynccontextmanager
    async def _open(self, name: str, plan: SetupPlan, command: str | None = None) -> AsyncIterator[Sandbox]:
        """`command` builds it."""
        name = hashlib.sha256(name.encode()).hexdigest()[:16]
        spec = SandboxSpec(f"{self.key}.{name}", with_source_times(self.fill), plan)
        sandbox = await self.provider.open(spec, on_output=self.on_output)
        try:
            yield await build(sandbox, command)
        finally:
            await asyncio.shield(sandbox.destroy())

    def _cache_path(self, tools: SetupTools) -> Path | None:
        """Equal hashes mean equal files to decide from, equal interpreters, and equal configuration."""
        if self.memory is None:
            return None
        entries = self.project.tree.entries()
        facts = {
            "format": FORMAT,
            "scope": self.project.scope,
            "test": self.project.test,
            "build": self.project.build,
            "network": list(self.project.network),
            "pythons": dict(tools.pythons),
            "node": [tools.node, dict(tools.nodes)],
            "files": {path: entry.oid for path, entry in entries.items() if is_manifest(path)},
        }
        return self.memory / f"{hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]}.json"


def _remembered(path: Path | None) -> CachedChoice:
    """What is stored there; nothing if it cannot be read."""
    try:
        return CachedChoice() if path is None else CachedChoice.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return CachedChoice()


def _remember(path: Path | None, choice: CachedChoice) -> None:
    if path is None or choice == CachedChoice():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(choice.model_dump_json(), "utf-8")
    fresh.replace(path)


def _outcome(trials: Sequence[Trial]) -> str:
    """What the first trial, which is the best, gave, and what became of the others."""
    best = trials[0]
    count = best.count
    test_counts = f"{count.passed} tests pass, {count.failed} fail, {count.skipped} are not run"
    if best.result is not None and best.result.count is None:
        test_counts = f"its tests end with exit code {best.result.execution.exit_code}"
    others = "; ".join(f"{one.candidate.name}: {one.ran}" for one in trials[1 : 1 + _MAX_NAMED])
    more = f" and {len(trials) - 1 - _MAX_NAMED} more" if len(trials) > 1 + _MAX_NAMED else ""
    comparison = f" Of {len(trials)} candidates most tests pass with it ({others}{more})." if others else ""
    objection = f" {best.reason}" if best.reason else ""
    return f"{test_counts}.{comparison}{objection}"


def _sentence(candidate: Candidate, outcome: str) -> str:
    return f"Set-up: {candidate.reason}" + (f": {outcome}" if outcome else ".")
