"""A project, a patch and a submission that are verified in a real sandbox."""

import textwrap
from collections.abc import Mapping

from app.agent.base import Objection, Submission
from app.core.examples import Because, Example
from app.core.verification import BaselineResult, UnchangedSubmission, Verification
from app.sandbox.base import SandboxProvider
from app.verify.feedback import MAX_FEEDBACK
from app.verify.project import ProjectUnderTest
from app.verify.verifier import Verifier
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.sandbox_projects import ProjectWorkspaces, patch_of

_BASELINES: dict[str, BaselineResult] = {}
"""What is known of the base of each project and its settings."""
_OF_PROJECT = ("limits", "guards", "find_before", "guarded")
Changes = dict[str, str | bytes | None]


class Trial:
    """One project: its verifier, and what was opened for it."""

    def __init__(self, provider: SandboxProvider, files: dict[str, str], **settings: object) -> None:
        self.files = {path: textwrap.dedent(content) for path, content in files.items()}
        tree = MemoryTree({path: content.encode() for path, content in self.files.items()})
        with_pytest = any("pytest" in content for content in self.files.values())
        self.key = repr((self.files, settings))
        self.workspaces = ProjectWorkspaces(provider, tree, with_pytest=with_pytest)
        of_project = {name: settings.pop(name) for name in _OF_PROJECT if name in settings}
        project = ProjectUnderTest(self.workspaces, tree, ListProgress(), **of_project)  # type: ignore[arg-type]
        self.verifier = Verifier(project, **settings)  # type: ignore[arg-type]

    async def planned(self, *written: Example) -> BaselineResult:
        """What is known of the base, with these examples as they ran there; all but the first are hidden."""
        found, told = await self.verifier.judge.freeze(written)
        assert len(found.examples) == len(written), told
        hidden = tuple(one.model_copy(update={"hidden": one.name != "1"}) for one in found.examples)
        examples = found.model_copy(update={"examples": hidden})
        return (await self.baseline()).model_copy(update={"examples": examples})

    async def baseline(self) -> BaselineResult:
        known = _BASELINES[self.key] = _BASELINES.get(self.key) or await self.verifier.baseline()
        return known

    async def verify(
        self,
        changes: Changes,
        reproduction: str = "",
        known: BaselineResult | None = None,
        earlier: tuple[UnchangedSubmission, ...] = (),
        objections: Mapping[str, str] | None = None,
    ) -> Verification:
        patch = patch_of({path: textwrap.dedent(c) if isinstance(c, str) else c for path, c in changes.items()})
        disputed = tuple(Objection(example=name, reason=reason) for name, reason in (objections or {}).items())
        submission = Submission(summary="All tests pass.", reproduction=reproduction, objections=disputed)
        verified = await self.verifier.verify(patch, submission, known or await self.baseline(), earlier)
        assert verified.patch == patch
        assert self.workspaces.alive == set()
        assert len(verified.feedback) <= MAX_FEEDBACK
        return verified.verification


UNITTEST = {
    "money.py": """\
        def add(a, b):
            return a - b

        def twice(a):
            return a + a
        """,
    "tests/__init__.py": "",
    "tests/test_money.py": """\
        import unittest
        import money

        class TestMoney(unittest.TestCase):
            def test_zero(self):
                self.assertEqual(money.add(0, 0), 0)

            def test_twice(self):
                self.assertEqual(money.twice(2), 4)

            def test_known_bad(self):
                self.assertEqual(1, 2)
        """,
}
FIXED = UNITTEST["money.py"].replace("a - b", "a + b")
NEW_TEST = """\
    import unittest
    import money

    class TestAdd(unittest.TestCase):
        def test_one(self):
            self.assertEqual(money.add(1, 2), 3)
    """
REPRODUCTION = "python3 -m unittest tests.test_add"


def example(expression: str, printed: str, behaviour: str, **changes: object) -> Example:
    """A program that prints the value of an expression."""
    values: dict[str, object] = {
        "behaviour": behaviour,
        "because": Because(quote="add(1, 2) gives -1, it should give 3", source="issue"),
        "run": "python",
        "program": f"import money\nprint({expression})\n",
        "stdout": f"{printed}\n",
    }
    return Example.model_validate(values | changes)


ISSUE = "`add(1, 2)` gives -1, it should give 3."
EXAMPLES = (
    example("money.add(1, 2)", "3", "The reported sum is right."),
    example("money.add(-1, -20)", "-21", "Negative numbers are added, too."),
    example("money.add(10**20, 1)", "100000000000000000001", "So are large ones."),
    example("money.add(5, 0)", "5", "Adding nothing changes nothing.", kind="keeps"),
)

PYTEST = {
    "pytest.ini": "[pytest]\n",
    "calc.py": "def half(a):\n    return a // 2\n",
    "test_calc.py": "import calc\n\ndef test_even():\n    assert calc.half(4) == 2\n",
}
