"""Runs examples on base and change, each twice in fresh sandboxes under other conditions, and compares outside them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from app.core.examples import Example, JudgedExample, OutdatedTest, PlanExamples, ProgramRun, Review
from app.core.patch import Patch, Tree
from app.verify.examples.checks import (
    FEW,
    did,
    in_text,
    is_quoted,
    is_reporters_own,
    named,
    refusal_of_text,
    refusal_on_base,
)
from app.verify.examples.programs import CONDITIONS, Condition, Programs
from app.verify.execution import gather_all
from app.verify.overlay import Overlay
from app.verify.project import ProjectUnderTest

MAX_EXAMPLES = 8
_NOT_IN_THE_ISSUE = "the words of `because` were not found in the issue"
Runs = tuple[ProgramRun, ...]


@dataclass(frozen=True)
class ExampleJudge:
    """For one job. `issue` is what people wrote; `build` is the command that makes a tree ready to run."""

    project: ProjectUnderTest
    issue: str
    build: str = ""

    async def freeze(
        self, written: Sequence[Example], outdated: Sequence[OutdatedTest] = ()
    ) -> tuple[PlanExamples, str]:
        """Run a plan's examples on the base; the second part is the answer to their author.

        Example programs that cannot be judged, or that say nothing on the base, are not kept. The first `shows` of the
        result is the one that the fixer sees; which others are hidden is decided by `app.agent.planning`.
        """
        taken = [JudgedExample(**dict(one)) for one in written[:MAX_EXAMPLES]]
        texts = [refusal_of_text(one, self.issue) for one in taken]
        run = [one for one, problem in zip(taken, texts, strict=True) if not problem]
        runs = dict(zip(map(id, run), await self._run(run, self.project.unfixed, "examples on the base"), strict=True))
        kept, already, refused, answers = [], [], [], []
        for number, (one, problem) in enumerate(zip(taken, texts, strict=True), 1):
            base = runs.get(id(one), ())
            why = problem or await asyncio.to_thread(refusal_on_base, one, base, self.issue, self.project.tree)
            quoted = await asyncio.to_thread(is_quoted, one, self.issue, self.project.tree)
            judged = one.model_copy(update={"base": base, "quoted": quoted})
            if why:
                refused.append(f"{one.behaviour.rstrip('.')}: {why}")
                answers.append(f"{number}. not kept: {why}.")
            elif judged.kind == "shows" and not judged.differs_on_base:
                already.append(judged)
                answers.append(f"{number}. prints today what it should print, so it shows nothing.")
            else:
                kept.append(judged)
                now = "prints this today" if one.kind == "keeps" else f"differs today: it {did(base, one)}"
                unquoted = "" if quoted or one.kind == "keeps" else " The quote was not found where it should stand."
                answers.append(f"{number}. kept: {now}.{unquoted}")
        ordered = sorted(kept, key=lambda one: one.kind != "shows")
        unfounded = [one for one in outdated if not in_text(one.because, self.issue)]
        refused += [f"outdated test {one.test}: {_NOT_IN_THE_ISSUE}" for one in unfounded]
        answers += [f"{one.test}: not taken as outdated: {_NOT_IN_THE_ISSUE}." for one in unfounded]
        found = PlanExamples(
            examples=named(ordered),
            refused=tuple(refused),
            already=tuple(already),
            outdated=tuple(one for one in outdated if one not in unfounded),
        )
        return found, "\n".join(answers)

    async def on_change(self, examples: Sequence[JudgedExample], patch: Patch) -> tuple[JudgedExample, ...]:
        """The same examples, with what they print on the change."""
        runs = await self._run(examples, patch, "examples on the change")
        return tuple(one.model_copy(update={"change": change}) for one, change in zip(examples, runs, strict=True))

    async def counter(self, written: Sequence[Example], patch: Patch, taken: Sequence[str] = ()) -> Review:
        """Run a reviewer's examples on base and change. Those that cannot be judged on either are not kept."""
        texts = [(one, refusal_of_text(one, self.issue)) for one in written[:MAX_EXAMPLES]]
        refused = [f"{one.behaviour.rstrip('.')}: {why}" for one, why in texts if why]
        run = [JudgedExample(**{**dict(one), "origin": "reviewer"}) for one, why in texts if not why]
        on_change, on_base = await gather_all(
            self._run(run, patch, "the reviewer's examples on the change"),
            self._run(run, self.project.unfixed, "the reviewer's examples on the base"),
        )
        kept = []
        for one, change, base in zip(run, on_change, on_base, strict=True):
            if problem := next((each.problem for each in (*change, *base) if each.problem), ""):
                refused.append(f"{one.behaviour.rstrip('.')}: it could not be run: {problem}")
            else:
                kept.append(one.model_copy(update={"change": change, "base": base}))
        return Review(examples=named(kept, taken, "r"), refused=tuple(refused))

    def works_already(self, found: PlanExamples) -> JudgedExample | None:
        """The reporter's own example, if it prints today what the issue asks for, others do too, and none differs.

        One example alone may have what the issue complains about for what it asks for.
        """
        if len(found.already) < FEW or any(one.kind == "shows" for one in found.examples):
            return None
        own = (one for one in found.already if one.quoted and is_reporters_own(one, self.issue))
        return next(own, None)

    async def _run(self, examples: Sequence[Example], patch: Patch | None, what: str) -> list[Runs]:
        """The runs of each example, one for each condition."""
        if not examples:
            return []
        tree: Tree = self.project.tree if patch is None else Overlay(self.project.tree, patch)
        with self.project.reported(f"{what}: {len(examples)}", what):
            done = await gather_all(*(self._under(condition, examples, tree, patch) for condition in CONDITIONS))
        return [tuple(runs) for runs in zip(*done, strict=True)]

    async def _under(
        self, condition: Condition, examples: Sequence[Example], tree: Tree, patch: Patch | None
    ) -> list[ProgramRun]:
        async with self.project.open(f"examples.{condition.name}", patch) as sandbox:
            programs = Programs(tree, sandbox, condition, build=self.build)
            # A hang on the base is a difference: it is waited for once.
            return [await programs.run(one, repeat=patch is not None or one.kind == "keeps") for one in examples]
