"""The author of the specification tests: looks, hands in, corrects once, and is bounded in turns and money."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.agent.author import MAX_SECOND_TURNS, MAX_TURNS, Author, decide_objection
from app.core.examples import SourceText
from app.core.verification import Outcome, Specification, SpecificationResult, SpecifiedTest
from app.llm.base import ModelAnswer, ModelRequest, Usage
from app.llm.errors import BudgetError, DayBudgetError, ModelError, ModelErrorKind
from app.sandbox.base import Sandbox
from tests.support.agent_harness import FILES, UnbudgetedModel, act, say
from tests.support.local_sandbox import LocalSandbox
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel, Turn

SPECIFY = act(
    ("specify", {"files": [{"path": "test_s.py", "content": "def test_a(): ...\n"}], "tests": ["test_s.py::test_a"]})
)
LOOK = act(("view", {"path": "app.py"}), ("search", {"query": "add"}))


def frozen(*shows: str, guards: int = 0, dropped: tuple[str, ...] = ()) -> Specification:
    tests = [SpecifiedTest(id=name, sentence=f"{name}.", role="shows", varies=True) for name in shows]
    tests += [SpecifiedTest(id=f"g{number}", sentence="It works.", role="guards") for number in range(guards)]
    absent = "" if tests else "none of the test author's tests fails on the base for the right reason."
    return Specification(tests=tuple(tests), dropped=dropped, runs=1, absent=absent)


GOOD = frozen("a", "b", guards=1)


@dataclass
class AuthorHarness:
    """Where an author writes: a model that plays a script, and a freezer that answers as it is told."""

    root: Path
    turns: Sequence[Turn]
    results: list[Specification] = field(default_factory=lambda: [GOOD])
    share: int = 1_000_000
    handed_in: list[tuple[str, ...]] = field(default_factory=list)
    files: list[tuple[SourceText, ...]] = field(default_factory=list)
    opened: int = 0
    sees_change: bool = False

    @asynccontextmanager
    async def open_sandbox(self) -> AsyncIterator[Sandbox]:
        self.opened += 1
        yield LocalSandbox(self.root, FILES)

    async def freeze(
        self, files: Sequence[SourceText], ids: Sequence[str], outdated: Sequence[str]
    ) -> tuple[Specification, str]:
        self.handed_in.append(tuple(ids))
        self.files.append(tuple(files))
        found = self.results.pop(0)
        return found, f"The news: {found.absent}"

    async def write(self) -> Specification:
        self.model = ScriptedModel(self.turns)
        author = Author(
            budgeted_model=UnbudgetedModel(self.model),
            progress=ListProgress(),
            open_sandbox=self.open_sandbox,
            freeze=self.freeze,
            share=self.share,
            sees_change=self.sees_change,
        )
        return await author.write("specification", "The issue.")

    def said(self, turn: int) -> list[str]:
        """What the model had been told when it was asked for that turn."""
        return [message.content for message in self.model.requests[turn - 1].messages]


async def test_author_reads_submits_and_ends(tmp_path: Path) -> None:
    harness = AuthorHarness(tmp_path, [LOOK, SPECIFY])
    found = await harness.write()
    assert found.tests == GOOD.tests
    assert (found.turns, found.cost, found.model) == (2, 2_000, "scripted")
    assert harness.model.keys == ["specification.1", "specification.2"]
    assert harness.files == [(SourceText(path="test_s.py", text="def test_a(): ...\n"),)]
    assert "return a - b" in harness.said(2)[-2]
    assert harness.opened == 1


async def test_author_has_three_read_only_tools(tmp_path: Path) -> None:
    harness = AuthorHarness(
        tmp_path, [act(("bash", {"command": "echo x > app.py"}), ("write", {"path": "x"})), SPECIFY]
    )
    await harness.write()
    assert [tool.name for tool in harness.model.requests[0].tools] == ["view", "search", "specify"]
    assert "There is no tool 'bash'" in harness.said(2)[-2]
    assert harness.opened == 0, "there was nothing to look at"


@pytest.mark.parametrize(
    "first", [frozen(), frozen("a"), frozen("a", "b", dropped=("c: was not run.",)), Specification(absent="x", runs=1)]
)
async def test_incomplete_specification_can_be_corrected_once(tmp_path: Path, first: Specification) -> None:
    harness = AuthorHarness(tmp_path, [SPECIFY, SPECIFY], [first, GOOD])
    assert (await harness.write()).tests == GOOD.tests
    assert "The news:" in harness.said(2)[-1]
    assert "Correct them once" in harness.said(2)[-1]


async def test_better_of_two_specifications_is_kept(tmp_path: Path) -> None:
    harness = AuthorHarness(tmp_path, [SPECIFY, SPECIFY], [frozen("a"), frozen()])
    found = await harness.write()
    assert [test.id for test in found.tests] == ["a"]
    none = AuthorHarness(tmp_path / "none", [SPECIFY, SPECIFY], [frozen(), frozen()])
    assert (await none.write()).absent == frozen().absent


async def test_rejection_without_execution_costs_only_a_turn(tmp_path: Path) -> None:
    refused = Specification(absent="the test author's tests were rejected: x")
    harness = AuthorHarness(tmp_path, [SPECIFY, SPECIFY, SPECIFY], [refused, refused, GOOD])
    assert (await harness.write()).tests == GOOD.tests


async def test_author_may_say_that_no_test_is_possible(tmp_path: Path) -> None:
    found = await AuthorHarness(tmp_path, [act(("specify", {"reason": "Only a\nlogo changes."}))]).write()
    assert found.absent == "the test author says that no test can show this: Only a logo changes."
    assert not found.tests


async def test_author_turns_are_limited(tmp_path: Path) -> None:
    harness = AuthorHarness(tmp_path, [LOOK] * MAX_TURNS)
    found = await harness.write()
    assert found.absent == f"the test author did not hand any in within {MAX_TURNS} turns."
    assert "You have two turns left" in harness.said(MAX_TURNS - 1)[-1]


async def test_author_without_tool_calls_is_reminded_once(tmp_path: Path) -> None:
    harness = AuthorHarness(tmp_path, [say("Let me think."), say("Hm.")])
    assert (await harness.write()).absent == "the test author stopped without handing any in."
    assert "Nothing happens without a tool call" in harness.said(2)[-1]


async def test_author_budget_is_limited(tmp_path: Path) -> None:
    harness = AuthorHarness(tmp_path, [LOOK, SPECIFY], share=1_000)
    found = await harness.write()
    assert "share of the budget" in found.absent
    assert harness.model.calls == 1


@pytest.mark.parametrize(
    "error",
    [
        ModelError("No key.", kind="give_up", reason="no_key"),
        ModelError("Too long.", kind="shrink", reason="does_not_fit"),
        BudgetError("The next call could cost too much."),
    ],
)
async def test_failing_author_model_does_not_stop_the_job(tmp_path: Path, error: Any) -> None:
    found = await AuthorHarness(tmp_path, [fails(error)]).write()
    assert found.absent == f"the test author could not be asked: {error.message}"


@pytest.mark.parametrize(
    "error", [ModelError("Busy.", kind="wait", reason="rate_limited"), DayBudgetError("Nothing left for today.")]
)
async def test_temporary_author_error_is_raised(tmp_path: Path, error: Any) -> None:
    with pytest.raises(type(error)):
        await AuthorHarness(tmp_path, [fails(error)]).write()


def fails(error: Exception) -> Turn:
    def turn(request: ModelRequest) -> ModelAnswer:
        raise error

    return turn


# objections


ENDS: tuple[tuple[str, Outcome], ...] = (("one", "failed"), ("two", "failed"), ("three", "passed"))
TESTS = tuple(
    SpecifiedTest(
        id=f"t::{name}", sentence=f"{name}.", role="shows", varies=True, head=head, head_text=f"said by {name}"
    )
    for name, head in ENDS
)
RESULT = SpecificationResult(files=(SourceText(path="t.py", text="def one(): ...\n"),), tests=TESTS, digest="d")


async def decide(content: str) -> tuple[Any, str]:
    asked: list[ModelRequest] = []

    async def ask(request: ModelRequest) -> ModelAnswer:
        asked.append(request)
        return ModelAnswer(content=content, usage=Usage())

    return await decide_objection(ask, "# Halves", RESULT, "It is nowhere said."), asked[0].messages[-1].content


async def test_a_third_call_decides_for_each_failing_test() -> None:
    found, shown = await decide(json.dumps({"withdrawn": ["t::two", "t::three", "t::x"], "reason": "Open.\nReally."}))
    assert (found.kept, found.withdrawn, found.reason) == (("t::one",), ("t::two",), "Open. Really.")
    for part in ("# Halves", "def one()", "said by two", "It is nowhere said."):
        assert part in shown
    assert "said by three" not in shown, "only what fails is argued about"


@pytest.mark.parametrize("content", ["", "all of them", "[]", '{"withdrawn": "t::one"}', '{"withdrawn": [1, null]}'])
async def test_unreadable_decision_withdraws_no_test(content: str) -> None:
    found, _ = await decide(content)
    assert (found.kept, found.withdrawn) == (("t::one", "t::two"), ())


@pytest.mark.parametrize("kind", ["shrink", "give_up"])
async def test_model_that_cannot_be_asked_withdraws_no_test(kind: ModelErrorKind) -> None:
    found = await decide_objection(asks_in_vain(kind), "# Halves", RESULT, "It is nowhere said.")
    assert (found.kept, found.withdrawn, found.reason) == (("t::one", "t::two"), (), "Nobody could be asked: No.")


async def test_objection_waits_for_a_provider_that_may_answer_later() -> None:
    with pytest.raises(ModelError):
        await decide_objection(asks_in_vain("wait"), "# Halves", RESULT, "It is nowhere said.")


def asks_in_vain(kind: ModelErrorKind) -> Callable[[ModelRequest], Awaitable[ModelAnswer]]:
    async def ask(_: ModelRequest) -> ModelAnswer:
        raise ModelError("No.", kind=kind, reason="x")

    return ask


REGRESSION = frozen(guards=2).model_copy(update={"absent": ""})


async def test_second_author_has_prompt_of_its_own_and_needs_no_red_test(tmp_path: Path) -> None:
    harness = AuthorHarness(tmp_path, [SPECIFY], [REGRESSION], sees_change=True)
    found = await harness.write()
    assert (len(found.tests), found.turns) == (2, 1)
    assert "You test a change before people review it." in harness.said(1)[0]


async def test_second_author_may_correct_dropped_tests_once_and_the_better_of_two_counts(tmp_path: Path) -> None:
    partly = REGRESSION.model_copy(update={"dropped": ("g9: was not run.",), "tests": REGRESSION.tests[:1]})
    harness = AuthorHarness(tmp_path, [SPECIFY, SPECIFY], [partly, REGRESSION], sees_change=True)
    assert (await harness.write()).tests == REGRESSION.tests


async def test_job_does_not_wait_for_a_second_author(tmp_path: Path) -> None:
    unavailable = ModelError("The provider is down.", kind="wait", reason="unavailable")
    found = await AuthorHarness(tmp_path, [unavailable], [], sees_change=True).write()
    assert (found.tests, found.absent) == ((), "the test author could not be asked: The provider is down.")


async def test_second_author_has_few_turns(tmp_path: Path) -> None:
    found = await AuthorHarness(tmp_path, [LOOK] * MAX_SECOND_TURNS, [], sees_change=True).write()
    assert found.absent == f"the test author did not hand any in within {MAX_SECOND_TURNS} turns."
