"""A job's desk: the rooms of one job in one process, whatever door it came through."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from app.asking import AskBench, answer
from app.attempts import Allotment, Attempt, trajectory_of
from app.bootstrap.ground import Ground
from app.bootstrap.kinds import KindOfTask
from app.bootstrap.lessons import memory_of
from app.bootstrap.outsider import outsider
from app.bootstrap.sandboxes import make_provider, toolbox
from app.bootstrap.showing import Showing
from app.bootstrap.sight import Sight
from app.context.history import MAX_COMMITS
from app.context.survey import Survey
from app.errors import AgentFixError
from app.failpoints import failpoint
from app.gitpatch import unified_diff
from app.gitstore import GitError
from app.job import Answers, Journal, Progress, Silence, Steering
from app.jobs.store import JobBlobs
from app.lessons.experience import Experience, commands_in
from app.model.base import WorkKind
from app.model.budget import Totals
from app.model.meters import Meters
from app.patch import Patch
from app.pipeline import Bench, Published, solve
from app.plan import Plan
from app.questions import nobody_answers
from app.result import Result
from app.runners.base import Runner, Submission
from app.runners.native import Surroundings
from app.runners.registry import find_runner
from app.sandbox.base import Sandbox, Setup, Spec
from app.sandbox.setup import plan_setup
from app.text import one_line
from app.verify.facts import Known, Verified
from app.verify.verifier import TimeLimits, Verifier
from app.verify.weight import changed_lines
from app.workspaces import AnotherAgent, Workspaces


class Desk(ABC):
    """The rooms of one job. Where people approve and where the change goes is the door's affair."""

    forget = "/agent forget"
    """How people take a lesson back."""

    def __init__(self, ground: Ground, progress: Progress, meters: Meters) -> None:
        self.ground = ground
        self.progress = progress
        self.meters = meters
        self.meter = meters.of("answer" if ground.job.aim == "ask" else "code")
        self.blobs = JobBlobs(ground.store.engine, ground.job.id)
        self.provider = make_provider(ground.job.sandbox, ground.settings)
        self.outsider = outsider(ground.job, ground.settings)
        self.workspaces = self._workspaces()
        self.memory = memory_of(ground.job, ground.lessons, ground.settings, ground.store, forget=self.forget)
        self.steering: Steering = Silence()
        self.kind = KindOfTask(ground.job, ground.mirror, ground.tree, ground.overrides)
        self.sight = Sight(ground.job, meters, self.blobs.get)
        self.showing = Showing(ground, self.kind, self.memory, self.sight, self._survey())
        self.runners: list[Runner] = []
        """One for each attempt, in order."""
        self.plan: Plan | None = None

    @abstractmethod
    async def approve(self, plan: Plan) -> Plan:
        """The plan as people want it; raises Parked where they have to be waited for."""

    async def answer(self, questions: tuple[str, ...], after: int) -> Answers:
        """What people said to a plan's questions; raises Parked where they have to be waited for."""
        return await nobody_answers(questions, after)

    def before(self) -> Patch:
        """Where the job is to resolve the conflicts of a merge: what makes its base into the branch as it was."""
        return Patch(base=self.ground.tree.commit)

    def diff_base(self) -> str:
        """The commit that people compare the change with; empty for the patch's own base."""
        return ""

    def keep_diff(self, patch: Patch) -> str:
        """Keep the change for people; returns its digest, empty where git would not take it."""
        try:
            diff = unified_diff(self.ground.mirror, patch, base=self.diff_base())
        except GitError:
            return ""
        return self.blobs.put(diff) if diff else ""

    def past(self) -> bytes:
        """The log of the commits up to the base, where this machine has it."""
        return self.ground.mirror.log(self.ground.job.task.base, MAX_COMMITS)

    @abstractmethod
    async def publish(self, patch: Patch, summary: str) -> Published:
        """Make the commit and have it where it belongs; twice is the same as once."""

    @abstractmethod
    def keep(self, result: Result) -> None:
        """Make the result the job's, before its workflow ends."""

    async def work(self, journal: Journal) -> Result:
        """The whole job on its bench; its final state is kept before the workflow ends."""
        try:
            return await self._work(journal)
        finally:
            if self.outsider is not None:
                self.outsider.close()

    async def _work(self, journal: Journal) -> Result:
        job = self.ground.job
        try:
            await self.memory.recall(self.ground.tree, self.progress)
            await self.sight.look(journal, self.progress)
            if job.aim == "ask":
                result = await answer(job, self.ask_bench(), journal)
            else:
                result = await solve(job, self.bench(), journal)
        except AgentFixError as error:
            if not error.final:
                raise
            result = Result(
                exit_status="error",
                reason=error.message,
                hint=error.hint,
                error_code=error.code,
                plan=self.plan,
                usage=self.meter.totals(),
                model=job.model,
            )
        notes = (*result.notes, *self.memory.used, *self.sight.notes)
        result = result.model_copy(update={"trajectory": self.keep_trajectory(), "notes": notes})
        self.keep(result)
        failpoint("finished")
        return result

    async def _learn(self, known: Known, verified: Sequence[Verified], submission: Submission | None) -> str:
        commands = tuple(commands_in(trajectory_of(self.runners)))
        experience = Experience(self.ground.job, self.ground.tree, known, verified, submission, commands)
        return await self.memory.learn(experience, self.progress)

    def keep_trajectory(self) -> str:
        """The digest of the steps so far, kept among the job's blobs; empty where there are none."""
        lines = trajectory_of(self.runners)
        return self.blobs.put("".join(f"{line}\n" for line in lines).encode("utf-8", "replace")) if lines else ""

    async def check_models(self) -> None:
        """Refuse, before anything costs, models that this job will ask and that cannot work."""
        kinds: tuple[WorkKind, ...] = ("answer", "cheap") if self.ground.job.aim == "ask" else ("plan", "code", "cheap")
        await self.meters.check(*kinds)

    async def prove_sandbox(self) -> None:
        """Open one that holds nothing, before anything costs: raises SandboxError where a property does not hold."""
        proof = await self.provider.open(Spec(key=f"{self.ground.job.id}.proof", fill=lambda _: None))
        await proof.destroy()

    def bench(self) -> Bench:
        job, config = self.ground.job, self.ground.config
        verifier = Verifier(
            self.workspaces,
            tree=self.ground.tree,
            test=config.test,
            lint=config.lint,
            protected_paths=config.protected_paths,
            conflicts=job.conflicts,
            before=self.before if job.conflicts else None,
            guarded=self.kind.guarded,
            expects_red=job.expects_red,
            progress=self.progress,
            limits=TimeLimits.within(job.budget.minutes),
            guards=self.showing.survey.guards,
        )
        return Bench(
            progress=self.progress,
            plan=self._plan,
            approve=self.approve,
            brief=self.showing.brief,
            open_work=self.workspaces.work,
            export=self.workspaces.export,
            runner=self._runner,
            verifier=verifier,
            publish=self.publish,
            totals=self._totals,
            answer=self.answer,
            learn=self._learn,
            keep_diff=self.keep_diff,
            changed_lines=partial(changed_lines, self.ground.tree),
            notes=(*self.ground.notes, *self.kind.notes),
            warnings=self._warnings,
        )

    def ask_bench(self) -> AskBench:
        return AskBench(
            progress=self.progress,
            brief=partial(self.showing.brief, None, Known()),
            open_work=self.workspaces.work,
            runner=self._only_runner,
            totals=self._totals,
            notes=self.ground.notes,
            warnings=self._warnings,
        )

    def _warnings(self) -> tuple[str, ...]:
        unprotected = "The work was done without a sandbox (--sandbox none)."
        left_out = [text.partition("\n")[0] for text in self.workspaces.left_out]
        return (*((unprotected,) if self.ground.job.sandbox == "none" else ()), *left_out)

    def _survey(self) -> Survey:
        task, caches = self.ground.job.task, self.ground.settings.state / "caches"
        text = "\n\n".join(filter(None, (task.issue.title, task.request, task.issue.body)))
        return Survey(self.ground.tree, text, cache=caches / "index", past=self.past)

    def _totals(self) -> Totals:
        return self.meter.totals()

    def _workspaces(self) -> Workspaces:
        job = self.ground.job
        return Workspaces(
            self.provider,
            job=job.id,
            fill=self._fill,
            tree=self.ground.tree,
            setup=self._setup,
            on_output=lambda output: self.progress.say("output", output.decode(errors="replace")),
            on_note=lambda text: self.progress.say("warning", text),
            agent=AnotherAgent(self._tools, self.outsider.socket) if self.outsider else None,
        )

    def _fill(self, directory: Path, patch: Patch | None) -> None:
        self.ground.mirror.checkout(self.ground.job.task.base, directory, patch.changes if patch else ())

    async def _setup(self) -> Setup:
        settings, config = self.ground.settings, self.ground.config
        tools = await toolbox(self.ground.job.sandbox, settings)
        setup = await plan_setup(
            self.ground.tree,
            commands=config.setup,
            extra_hosts=config.network,
            clients=tools.clients,
            python=tools.python,
            scope=self.ground.job.task.repository,
            find_tool=tools.find_tool,
        )
        for command in setup.commands:
            self.progress.say("note", f"set-up: {one_line(command)[:160]}")
        for note in setup.notes:
            self.progress.say("note", f"set-up: {note}")
        return setup

    async def _tools(self) -> Setup:
        """The programs of another agent, where one does the work."""
        if self.outsider is None:
            raise ValueError("our own runner needs no programs")
        self.progress.say("note", f"runner: {self.outsider.recipe.title} {self.outsider.recipe.version}")
        tools = await toolbox(self.ground.job.sandbox, self.ground.settings)
        return await self.outsider.tools(tools.python, tools.clients, tools.find_tool)

    async def _plan(self, journal: Journal, answers: Sequence[Answers] = ()) -> Plan:
        self.plan = await self.showing.plan(self.meters, journal, answers)
        return self.plan

    def _only_runner(self, sandbox: Sandbox, journal: Journal) -> Runner:
        return self._runner(sandbox, Attempt(1, journal, Allotment(budget=self.ground.job.budget)))

    def _runner(self, sandbox: Sandbox, attempt: Attempt) -> Runner:
        around = Surroundings(
            meter=attempt.asks(self.meter, lambda: self.meter.totals().cost),
            sandbox=sandbox,
            baseline=self.workspaces.baseline,
            journal=attempt.journal,
            blobs=self.blobs,
            progress=self.progress,
            budget=attempt.allotment.budget,
            steering=self.steering,
        )
        guest = self.outsider
        ledger, until = self.meters.ledger, attempt.allotment.until
        make = find_runner(guest.recipe, guest.way_out(ledger, until)) if guest else find_runner(None)
        self.runners.append(make(around))
        return self.runners[-1]
