"""Executes one scripted job with the real verifier in real sandboxes, and the hidden check of what it did."""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from app.agent.base import Submission
from app.core.examples import SourceText
from app.core.patch import Patch
from app.core.verification import BaselineResult, Facts, Specification, Verification
from app.sandbox.base import SandboxProvider, SetupPlan
from app.sandbox.workspaces import Workspaces
from app.verify.overlay import Overlay
from app.verify.project import ProjectUnderTest
from app.verify.verdict import facts_of, specification_supports_change, with_verdict
from app.verify.verifier import Verifier
from tests.attacks.proof.corpus import COMMIT, Case, Framework
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.sandbox_projects import WITH_GO, WITH_PYTEST, npm_setup

_Key = tuple[str, ...]
_GO = 'mkdir -p zz && printf %s "$1" >zz/main.go && export GOCACHE=/env/go/cache GODEBUG=goindex=0 && exec go run ./zz'
_CARGO = 'mkdir -p examples && printf %s "$1" >examples/zz.rs && exec cargo run -q --example zz'
_CHECKS: Mapping[Framework, Sequence[str]] = {
    "node": ("node", "-e"),
    "vitest": ("node", "--input-type=module", "-e"),
    "jest": ("node", "-e"),
    "go": ("sh", "-c", _GO, "sh"),
    "cargo": ("sh", "-c", _CARGO, "sh"),
}
FROM_NPM: Collection[Framework] = ("vitest", "jest")
_SETUPS: Mapping[Framework, SetupPlan] = {"pytest": WITH_PYTEST, "go": WITH_GO}


class Trials:
    """What is known of the bases is kept for the next trial, as it is for the next submission of a job."""

    def __init__(self, provider: SandboxProvider) -> None:
        self._provider = provider
        self._baselines: dict[_Key, BaselineResult] = {}
        self._frozen: dict[_Key, Specification] = {}

    async def verdict(self, case: Case) -> Verification:
        verifier = self._verifier(case)
        known = await self._known(case, verifier)
        verified = await verifier.verify(
            case.patch(), Submission(summary="It works now.", reproduction=case.reproduction), known
        )
        return verified.verification

    async def verdict_with_second_tests(self, case: Case, found: Verification) -> Verification:
        """The verdict with the tests of a second author, who is asked only if the first one's support the change."""
        given, first = case.second_tests, found.specification
        if given is None or first is None or not specification_supports_change(first):
            return found
        verifier = self._verifier(case)
        files = [SourceText(path=path, text=text) for path, text in given.files.items()]
        frozen, told = await verifier.prover.specify_against(first, case.patch(), files, given.ids)
        assert frozen.tests, told
        second = await verifier.prover.second_tests(case.patch(), frozen)
        return with_verdict(Facts(**{**facts_of(found), "second_tests": second}))

    async def prints(self, case: Case) -> str:
        """What the hidden check prints on the head."""
        program = case.check or case.bug.check
        command = _CHECKS.get(case.project.framework, ("python3", "-c"))
        workspaces = self._workspaces(case)
        async with workspaces.temporary_sandbox("check", case.patch()) as sandbox:
            done = await sandbox.exec([*command, program], timeout=200)
        return done.output.decode("utf-8", "replace").strip()

    async def _known(self, case: Case, verifier: Verifier) -> BaselineResult:
        """The suite and the author's tests on the base."""
        base = _key(case)
        if base not in self._baselines:
            self._baselines[base] = await verifier.baseline()
        key = (*base, case.text, repr(case.tests))
        if key not in self._frozen:
            self._frozen[key] = await _specified(case, verifier)
        return self._baselines[base].model_copy(update={"specification": self._frozen[key]})

    def _verifier(self, case: Case) -> Verifier:
        project = ProjectUnderTest(self._workspaces(case), _tree(_key(case)), ListProgress())
        return Verifier(project, text=case.text)

    def _workspaces(self, case: Case) -> Workspaces:
        tree = _tree(_key(case))

        async def setup() -> SetupPlan:
            if case.project.framework in FROM_NPM:
                return await npm_setup(case.project.files["package.json"])
            return _SETUPS.get(case.project.framework, SetupPlan())

        def fill(directory: Path, patch: Patch | None) -> None:
            after = Overlay(tree, patch or Patch(base=COMMIT))
            for path, entry in after.entries().items():
                file = directory / path
                file.parent.mkdir(parents=True, exist_ok=True)
                if entry.mode == "120000":
                    file.symlink_to(after.read(path).decode())
                else:
                    file.write_bytes(after.read(path))

        return Workspaces(self._provider, job="job", fill=fill, tree=tree, setup=setup)


def _key(case: Case) -> _Key:
    return tuple(text for item in sorted(case.files.items()) for text in item)


@lru_cache(maxsize=64)
def _tree(key: _Key) -> MemoryTree:
    return MemoryTree({path: text.encode() for path, text in zip(key[::2], key[1::2], strict=True)})


async def _specified(case: Case, verifier: Verifier) -> Specification:
    if case.tests is None:
        return Specification(absent="the author wrote none.")
    files, ids = case.tests.written(case.project.framework)
    frozen, _ = await verifier.prover.specify(files, ids)
    return frozen
