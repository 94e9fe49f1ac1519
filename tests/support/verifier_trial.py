"""A project, a patch and a submission that are verified in a real sandbox."""

import textwrap

from app.agent.base import Submission
from app.core.examples import SourceText
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

    async def specified(self, files: dict[str, str], *ids: str) -> BaselineResult:
        """What is known of the base, with these tests of an independent test author."""
        sources = [SourceText(path=path, text=textwrap.dedent(text)) for path, text in files.items()]
        frozen, told = await self.verifier.prover.specify(sources, ids)
        assert frozen.tests, told
        return (await self.baseline()).model_copy(update={"specification": frozen})

    async def baseline(self) -> BaselineResult:
        known = _BASELINES[self.key] = _BASELINES.get(self.key) or await self.verifier.baseline()
        return known

    async def verify(
        self,
        changes: Changes,
        reproduction: str = "",
        known: BaselineResult | None = None,
        earlier: tuple[UnchangedSubmission, ...] = (),
    ) -> Verification:
        patch = patch_of({path: textwrap.dedent(c) if isinstance(c, str) else c for path, c in changes.items()})
        submission = Submission(summary="All tests pass.", reproduction=reproduction)
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


SPECIFIED = {
    "tests/test_spec_example.py": """\
        import unittest
        import money

        class Example(unittest.TestCase):
            def test_example(self):
                \"\"\"The reported sum is right.\"\"\"
                self.assertEqual(money.add(1, 2), 3)
        """,
    "tests/test_spec_more.py": """\
        import unittest
        import money

        class More(unittest.TestCase):
            def test_negative(self):
                \"\"\"Negative numbers are added, too.\"\"\"
                self.assertEqual(money.add(-1, -2), -3)

            def test_large(self):
                \"\"\"So are large ones.\"\"\"
                self.assertEqual(money.add(10**20, 1), 10**20 + 1)

            def test_zero(self):
                \"\"\"Adding nothing changes nothing.\"\"\"
                self.assertEqual(money.add(5, 0), 5)
        """,
}
SPECIFIED_IDS = (
    "tests.test_spec_example.Example.test_example",
    "tests.test_spec_more.More.test_negative",
    "tests.test_spec_more.More.test_large",
    "tests.test_spec_more.More.test_zero",
)

PYTEST = {
    "pytest.ini": "[pytest]\n",
    "calc.py": "def half(a):\n    return a // 2\n",
    "test_calc.py": "import calc\n\ndef test_even():\n    assert calc.half(4) == 2\n",
}
