"""A question gets an answer, and what answers it could neither publish nor verify anything, by type."""

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import get_type_hints

import pytest

from app.agent.base import Runner, RunnerContext
from app.agent.loop import NativeRunner
from app.core.errors import ExitCode
from app.core.job import Budget, Job, JobResult, Journal, UserMessage, WaitingForUser
from app.core.model_usage import Totals
from app.core.patch import Patch
from app.core.task import Issue, Task
from app.pipeline.answer import AnswerServices, answer
from app.sandbox.base import Sandbox
from app.sandbox.changes import baseline
from tests.support.agent_harness import FILES, UnbudgetedModel, act, bash, say
from tests.support.local_sandbox import LocalSandbox
from tests.support.local_tree import LocalTree
from tests.support.memory_journal import Died, MemoryBlobs, MemoryJournal
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel, Turn

TRY = act(bash("sed -i s/-/+/ app.py && grep -n + app.py"))
ANSWER = act(("submit", {"summary": "`app.py:2` subtracts."}))


@dataclass
class AnswerHarness:
    """A job that answers a question with the native runner."""

    root: Path
    turns: list[Turn]
    budget: Budget = field(default_factory=Budget)
    said: list[UserMessage] = field(default_factory=list)
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)

    def __post_init__(self) -> None:
        self.model = ScriptedModel(self.turns)
        self.sandbox = LocalSandbox(self.root, FILES)

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        return tuple(said for said in self.said if said.seq > seq)

    def services(self) -> AnswerServices:
        return AnswerServices(
            progress=ListProgress(),
            brief=lambda: "Does add subtract?",
            open_work=self.open_work,
            runner=self.runner,
            totals=Totals,
            notes=("3 hidden characters were removed.",),
        )

    async def open_work(self) -> Sandbox:
        return self.sandbox

    def runner(self, sandbox: Sandbox, journal: Journal) -> Runner:
        around = RunnerContext(
            budgeted_model=UnbudgetedModel(self.model),
            sandbox=sandbox,
            baseline=baseline(MemoryTree(FILES)),
            journal=journal,
            blobs=self.blobs,
            progress=ListProgress(),
            budget=self.budget,
            user_messages=self,
        )
        return NativeRunner(around, tree=LocalTree(self.sandbox, FILES))

    async def work(self, journal: Journal) -> JobResult:
        return await answer(job(), self.services(), journal)


def job() -> Job:
    issue = Issue(title="add is wrong", body="")
    task = Task(repository="o/r", issue=issue, base="0" * 40, base_ref="main", slug="s", request="Does add subtract?")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Job(id="j", task=task, branch="b", budget=Budget(), model="m", created_at=now, aim="ask")


async def test_question_is_investigated_and_answered(tmp_path: Path) -> None:
    harness = AnswerHarness(tmp_path, [TRY, ANSWER])
    result = await harness.work(MemoryJournal())
    assert (result.exit_status, result.exit_code) == ("answered", ExitCode.OK)
    assert result.summary == "`app.py:2` subtracts."
    assert (result.branch, result.commit, result.verification, result.changes) == ("", "", None, ())
    assert (result.turns, result.notes) == (2, ("3 hidden characters were removed.",))
    assert "answers a question" in harness.model.requests[0].messages[0].content


def test_an_answering_job_has_no_way_to_publish() -> None:
    """Neither a name nor a type of what a patch is made, verified or published with."""
    names = {each.name for each in fields(AnswerServices)}
    assert names == {"progress", "brief", "open_work", "runner", "totals", "notes", "warnings"}
    told = " ".join(map(str, get_type_hints(AnswerServices).values()))
    assert not [word for word in (Patch.__name__, "Published", "Verifie", "Publish") if word in told]


async def test_messages_are_read_before_the_answer_is_accepted(tmp_path: Path) -> None:
    harness = AnswerHarness(tmp_path, [ANSWER, act(("submit", {"summary": "It subtracts, and twice doubles."}))])
    harness.said.append(UserMessage(seq=1, author="octocat", text="And twice?"))
    result = await harness.work(MemoryJournal())
    assert result.summary == "It subtracts, and twice doubles."
    assert "From octocat, who may ask: And twice?" in harness.model.requests[1].messages[-1].content


async def test_answering_job_pauses_at_a_limit(tmp_path: Path) -> None:
    harness = AnswerHarness(tmp_path, [TRY], budget=Budget(steps=1))
    journal = MemoryJournal()
    with pytest.raises(WaitingForUser) as parked:
        await harness.work(journal)
    assert (parked.value.state, parked.value.code) == ("paused", ExitCode.LIMIT_REACHED)
    harness.budget, harness.model = Budget(steps=2), ScriptedModel([ANSWER])
    assert (await harness.work(journal.resumed())).exit_status == "answered"


async def test_a_model_that_answers_nothing_is_an_error_with_its_reason(tmp_path: Path) -> None:
    result = await AnswerHarness(tmp_path, [say(""), say(""), say("")]).work(MemoryJournal())
    assert (result.exit_status, result.exit_code, result.summary) == ("error", ExitCode.MODEL, "")
    assert "no answer" in result.reason


async def test_text_without_a_call_is_the_answer(tmp_path: Path) -> None:
    result = await AnswerHarness(tmp_path, [TRY, say("It subtracts.")]).work(MemoryJournal())
    assert (result.exit_status, result.summary, result.turns) == ("answered", "It subtracts.", 2)
    long = await AnswerHarness(tmp_path / "long", [say("word " * 9_000)]).work(MemoryJournal())
    assert (long.exit_status, len(long.summary)) == ("answered", 8_000)


async def test_a_message_is_read_before_a_text_is_taken_for_the_answer(tmp_path: Path) -> None:
    harness = AnswerHarness(tmp_path, [say("It subtracts."), say("It subtracts, and twice doubles.")])
    harness.said.append(UserMessage(seq=1, author="octocat", text="And twice?"))
    result = await harness.work(MemoryJournal())
    assert result.summary == "It subtracts, and twice doubles."
    assert "And twice?" in harness.model.requests[1].messages[-1].content


@pytest.mark.parametrize("step", ["turn.1.answer", "turn.1.act", "turn.2.answer", "turn.2.act"])
async def test_crash_does_not_change_the_answer(step: str, tmp_path: Path) -> None:
    harness = AnswerHarness(tmp_path, [TRY, ANSWER])
    journal = MemoryJournal(die_at=step, moment="after")
    with pytest.raises(Died):
        await harness.work(journal)
    assert (await harness.work(journal.resumed())).summary == "`app.py:2` subtracts."
    assert harness.model.calls == 2


def test_question_gets_a_fifth_of_the_budget() -> None:
    assert Budget(usd=5_000_000, minutes=60, steps=100).for_a_look() == Budget(usd=1_000_000, minutes=12, steps=20)
    assert Budget(steps=1).for_a_look().steps == 1
