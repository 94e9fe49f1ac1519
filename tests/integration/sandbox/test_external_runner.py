"""Another agent in a real sandbox with a gateway: its rounds, its limits, its submission, and what is not believed."""

import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from app.agent.base import Assignment, ReviewResult, RunnerContext, RunnerEnding, Submission
from app.agent.external.exchange import Exchange
from app.agent.external.gateway import ModelSocket
from app.agent.external.recipe import AgentRecipe, parse
from app.agent.external.runner import ROUNDS, STARTS, AgentRun, ExternalRunner
from app.agent.step import Checkpoint
from app.core.job import Budget, UserMessage
from app.llm.base import Body, ModelInfo, StreamEvent, Usage, WireProtocol
from app.llm.errors import ModelError
from app.llm.ledger import Ledger
from app.sandbox.base import Sandbox, SandboxProvider, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.changes import baseline, export
from tests.support.agent_harness import UnbudgetedModel
from tests.support.memory_journal import Died, MemoryBlobs, MemoryJournal
from tests.support.memory_ledger import MemoryLedger
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel
from tests.support.shell_agent import remembering

TREE = MemoryTree({"app.py": b"def add(a, b):\n    return a - b\n"})
FIXED = b"def add(a, b):\n    return a + b\n"
FIX = "sed -i s/-/+/ /workspace/app.py"
HAND_IN = """echo '{"summary": "add adds", "reproduction": "python3 -c pass"}' > /tmp/submission.json"""
RECIPE = parse(
    '''
name = "parrot"
title = "Parrot"
client = "pip"
packages = ["parrot==1.0"]
wire = "chat"
command = ["python3", "-I", "$home/parrot.py", "$task", "$base", "$token", "$model"]
[files]
"$home/parrot.py" = """
import json, subprocess, sys, urllib.request
task, base, token, model = sys.argv[1:]
messages = [dict(role="user", content=task)]
while True:
    body = json.dumps(dict(model=model, messages=messages, max_tokens=400)).encode()
    request = urllib.request.Request(base + "/v1/chat/completions", body, dict(authorization="Bearer " + token))
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]["content"]
    if answer.startswith("exit"):
        sys.exit(int(answer[4:] or 0))
    subprocess.run(["sh", "-c", answer])
    messages.append(dict(role="assistant", content=answer))
"""
''',
    "parrot.toml",
)


PRICED = ModelInfo("scripted", 100_000, 4_000, input_price=1_000_000, output_price=1_000_000)


@dataclass
class ScriptedTexts:
    """A model that says these things one after the other; what it was sent stands in `bodies`."""

    lines: Sequence[str | ModelError]
    words: list[UserMessage] = field(default_factory=list)
    """Where what people say goes, when a line is of theirs (`# ada: words`)."""
    bodies: list[Body] = field(default_factory=list)
    info: ModelInfo = PRICED

    async def complete(self, wire: WireProtocol, body: Body, limit: int) -> dict[str, Any]:
        self.bodies.append(body)
        line = self.lines[len(self.bodies) - 1]
        if isinstance(line, ModelError):
            raise line
        if line.startswith("# ada: "):
            self.words.append(UserMessage(seq=len(self.words) + 1, author="ada", text=line.partition("\n")[0][7:]))
        message = {"role": "assistant", "content": line}
        usage = {"prompt_tokens": 100, "completion_tokens": 10}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": usage}

    async def stream(self, wire: WireProtocol, body: Body, limit: int) -> AsyncGenerator[StreamEvent]:
        """The parrot does not."""
        yield StreamEvent("", await self.complete(wire, body, limit))

    def task(self, number: int) -> str:
        return str(self.bodies[number]["messages"][0]["content"])

    def talk(self, number: int) -> list[str]:
        return [str(message["content"]) for message in self.bodies[number]["messages"]]


@dataclass
class RunnerHarness:
    """One job's memory, for several processes one after the other."""

    place: Path
    provider: SandboxProvider
    blobs: MemoryBlobs = field(default_factory=MemoryBlobs)
    journal: MemoryJournal = field(default_factory=MemoryJournal)
    words: list[UserMessage] = field(default_factory=list)
    verdicts: list[ReviewResult] = field(default_factory=list)
    submitted: list[Submission] = field(default_factory=list)
    ledger: Ledger = field(default_factory=lambda: MemoryLedger(1_000_000))
    recipe: AgentRecipe = RECIPE
    runner: ExternalRunner | None = None
    patch: dict[str, bytes | None] = field(default_factory=dict)
    brief: str = "Fix add."
    until: int = 0
    pauses_at_limit: bool = True
    progress: ListProgress = field(default_factory=ListProgress)

    async def since(self, seq: int) -> tuple[UserMessage, ...]:
        return tuple(said for said in self.words if said.seq > seq)

    async def review(self, submission: Submission) -> ReviewResult:
        """Its own steps are not the runner's: each submission is judged anew here."""
        self.submitted.append(submission)
        return self.verdicts[len(self.submitted) - 1] if self.verdicts else ReviewResult(accepted=True)

    async def work(self, model: ScriptedTexts, budget: Budget | None = None, *, key: str = "work") -> RunnerEnding:
        async with self._sandbox(key) as sandbox:
            around = RunnerContext(
                budgeted_model=UnbudgetedModel(ScriptedModel([])),
                sandbox=sandbox,
                baseline=baseline(TREE),
                journal=self.journal,
                blobs=self.blobs,
                progress=self.progress,
                budget=budget or Budget(),
                user_messages=self,
            )
            model_socket = ModelSocket(self.place / "model.sock", model, self.ledger, self.until)
            self.runner = ExternalRunner(
                self.recipe, around, model_socket, pauses_at_limit=self.pauses_at_limit, message_check_seconds=0.02
            )
            ending = await self.runner.work(Assignment(brief=self.brief), self.review)
            changes = (await export(sandbox, baseline(TREE))).changes
            self.patch = {change.path: change.content for change in changes}
            return ending

    @asynccontextmanager
    async def _sandbox(self, key: str) -> AsyncIterator[Sandbox]:
        def fill(directory: Path) -> None:
            for path, content in TREE.files.items():
                (directory / path).write_bytes(content)

        sandbox = await self.provider.open(SandboxSpec(key=key, fill=fill, model_socket=self.place / "model.sock"))
        try:
            yield sandbox
        finally:
            await sandbox.close()


@pytest.fixture
async def case_runner(tmp_path: Path) -> AsyncIterator[RunnerHarness]:
    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches", environment=dict(os.environ))
    (tmp_path / "s").mkdir()
    yield RunnerHarness(tmp_path / "s", provider)
    assert list((tmp_path / "s").iterdir()) == [], "the way out is closed with the agent"


async def test_an_external_agent_fixes_and_every_call_is_a_step(case_runner: RunnerHarness) -> None:
    model = ScriptedTexts(["ls", FIX, HAND_IN, "exit"])
    ending = await case_runner.work(model)
    assert (ending.exit_status, ending.turns) == ("submitted", 4)
    assert case_runner.submitted == [Submission(summary="add adds", reproduction="python3 -c pass")]
    assert case_runner.patch == {"app.py": FIXED}
    assert "Fix add." in model.task(0)
    assert case_runner.ledger.spent() == 4 * 110
    assert case_runner.runner is not None
    steps = [json.loads(line) for line in case_runner.runner.trajectory()]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert [step["content"] for step in steps] == ["ls", FIX, HAND_IN, "exit"]
    assert steps[-1]["ended"]["files"] == ["app.py"]
    assert set(steps[0]["seconds"]) == {"model"}


@pytest.mark.parametrize("word", ["word ", "字", "\0"])
async def test_an_overlong_task_keeps_its_beginning_and_end(case_runner: RunnerHarness, word: str) -> None:
    case_runner.brief = f"Fix add. {word * 100_000}"
    model = ScriptedTexts([FIX, HAND_IN, "exit"])
    assert (await case_runner.work(model)).exit_status == "submitted"
    task = model.task(0)
    assert task.startswith("Fix add.")
    assert " bytes are left out here.]" in task
    assert "# How to end" in task
    assert len(task.encode()) < 128 * 1024


async def test_the_verifiers_objections_become_the_next_task(case_runner: RunnerHarness) -> None:
    case_runner.verdicts = [
        ReviewResult(accepted=False, text="Newly failing: test_money."),
        ReviewResult(accepted=True),
    ]
    case_runner.words = [UserMessage(seq=1, author="ada", text="Mind the sign.")]
    model = ScriptedTexts([FIX, HAND_IN, "exit", HAND_IN, "exit"])
    ending = await case_runner.work(model)
    assert ending.exit_status == "submitted"
    assert "Newly failing: test_money." in model.task(3)
    assert "Fix add." in model.task(3)
    assert "From ada, who may ask: Mind the sign." in model.task(3)


async def test_an_external_agent_is_not_restarted_for_ever(case_runner: RunnerHarness) -> None:
    case_runner.verdicts = [ReviewResult(accepted=False, text="no")] * ROUNDS
    ending = await case_runner.work(ScriptedTexts([FIX, *[HAND_IN, "exit"] * ROUNDS]))
    assert ending.exit_status == "error"
    assert "was not accepted" in ending.reason
    assert len(case_runner.submitted) == ROUNDS


async def test_a_change_counts_without_the_agents_report(case_runner: RunnerHarness) -> None:
    ending = await case_runner.work(ScriptedTexts([FIX, "exit"]))
    assert ending.exit_status == "submitted"
    assert case_runner.submitted == [Submission(summary="exit", reproduction_was_requested=True)]


def hand_in(document: str) -> str:
    return f"cat > /tmp/submission.json << 'END'\n{document}\nEND"


@pytest.mark.parametrize("field", ['"reproduction_was_requested": true', r'"reproduction": "true \u0000"'])
async def test_a_submission_with_another_field_or_nul_does_not_count(case_runner: RunnerHarness, field: str) -> None:
    ending = await case_runner.work(ScriptedTexts([FIX, hand_in(f'{{"summary": "add adds", {field}}}'), "exit"]))
    assert ending.exit_status == "submitted"
    assert [each.summary for each in case_runner.submitted] == ["exit"]
    assert "parrot: its submission could not be used (reproduction" in case_runner.progress.texts("warning")[-1]


@pytest.mark.parametrize("document", ['{{"summary": "{}", "objection": null}}', '```json\n{{"summary": "{}"}}\n```'])
async def test_a_submission_is_read_as_the_call_of_a_tool_is(case_runner: RunnerHarness, document: str) -> None:
    summary = "字" * 7_000
    await case_runner.work(ScriptedTexts([FIX, hand_in(document.format(summary)), "exit"]))
    assert case_runner.submitted == [Submission(summary=summary)]


async def test_an_agent_is_told_the_turns_that_are_left(case_runner: RunnerHarness) -> None:
    case_runner.recipe = RECIPE.model_copy(update={"environment": {"TURNS": "$turns"}})
    case_runner.verdicts = [ReviewResult(accepted=False, text="no"), ReviewResult(accepted=True)]
    tell = "echo $TURNS >> turns"
    await case_runner.work(ScriptedTexts([tell, HAND_IN, "exit", tell, HAND_IN, "exit"]), Budget(steps=9))
    assert case_runner.patch == {"turns": b"9\n6\n"}


@pytest.mark.parametrize(("code", "status"), [("exit", "no_change"), ("exit 7", "error")])
async def test_a_job_that_did_nothing_says_so(case_runner: RunnerHarness, code: str, status: str) -> None:
    ending = await case_runner.work(ScriptedTexts(["true", code]))
    assert ending.exit_status == status
    assert "Parrot" in ending.reason
    assert case_runner.submitted == []


async def test_an_earlier_submission_is_not_handed_in_again(case_runner: RunnerHarness) -> None:
    case_runner.verdicts = [ReviewResult(accepted=False, text="no"), ReviewResult(accepted=True)]
    await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit", "true", "exit"]))
    assert [each.summary for each in case_runner.submitted] == ["add adds", "exit"]


async def test_turns_that_are_used_pause_the_job_and_more_of_them_go_on(case_runner: RunnerHarness) -> None:
    ending = await case_runner.work(ScriptedTexts([FIX, "true"]), Budget(steps=2))
    assert (ending.exit_status, ending.reason) == ("limit_reached", "All 2 turns are used.")
    case_runner.journal = case_runner.journal.resumed()
    ending = await case_runner.work(ScriptedTexts([HAND_IN, "exit"]), Budget(steps=9), key="another-machine")
    assert ending.exit_status == "submitted"
    assert case_runner.patch == {"app.py": FIXED}, "it goes on with the tree as it stood"


async def test_money_that_is_spent_pauses_the_job(case_runner: RunnerHarness) -> None:
    case_runner.ledger = MemoryLedger(1_100)
    ending = await case_runner.work(ScriptedTexts([FIX, "true", "true", "true"]))
    assert ending.exit_status == "limit_reached"
    assert "budget" in ending.reason
    assert case_runner.ledger.spent() <= 1_100


async def test_an_attempt_keeps_to_its_share_of_the_money(case_runner: RunnerHarness) -> None:
    case_runner.until = 1_100
    ending = await case_runner.work(
        ScriptedTexts([FIX, "true", "true", "true", "true", "true", "true", "true", "true", "true"])
    )
    assert ending.exit_status == "limit_reached"
    assert ending.reason == "This attempt's share of the money is used."
    assert case_runner.ledger.spent() <= 1_100


async def test_an_attempt_that_used_its_share_is_not_continued_after_a_crash(case_runner: RunnerHarness) -> None:
    case_runner.until, case_runner.pauses_at_limit = 1_100, False
    await case_runner.work(ScriptedTexts([FIX, *["true"] * 9]))
    case_runner.journal = case_runner.journal.resumed()
    ending = await case_runner.work(ScriptedTexts([]))
    assert (ending.exit_status, ending.reason) == ("limit_reached", "This attempt's share of the money is used.")


@pytest.mark.parametrize("before", [[], [FIX]])
async def test_an_outage_of_the_provider_is_waited_for(case_runner: RunnerHarness, before: list[str]) -> None:
    down = ModelError("The provider is down.", kind="retry", reason="server_error")
    with pytest.raises(ModelError, match="is down"):
        await case_runner.work(ScriptedTexts(["true", *before, down]))
    case_runner.journal = case_runner.journal.resumed()
    ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]))
    assert (ending.exit_status, case_runner.patch) == ("submitted", {"app.py": FIXED})


async def test_work_before_an_outage_is_kept_and_continued(case_runner: RunnerHarness) -> None:
    down = ModelError("The provider is down.", kind="retry", reason="server_error")
    with pytest.raises(ModelError, match="is down"):
        await case_runner.work(ScriptedTexts(["true", FIX, down]))
    assert case_runner.runner is not None
    assert [change.content for change in case_runner.runner.last_change().changes] == [FIXED]
    assert len(list(case_runner.runner.trajectory())) == 3
    case_runner.journal = case_runner.journal.resumed()
    with pytest.raises(ModelError, match="is down"):
        await case_runner.work(ScriptedTexts([down]), key="second")
    case_runner.journal = case_runner.journal.resumed()
    ending = await case_runner.work(ScriptedTexts([HAND_IN, "exit"]), key="third")
    assert (ending.exit_status, ending.turns, case_runner.patch) == ("submitted", 4, {"app.py": FIXED})
    assert sorted(case_runner.journal.kept) == ["parrot.1", "parrot.2"], "a start without an answer is repeated"


@pytest.mark.parametrize("reason", ["timeout", "connection_lost", "stream_cut"])
async def test_a_start_whose_only_answer_was_lost_is_repeated(case_runner: RunnerHarness, reason: str) -> None:
    lost = ModelError("The answer was lost.", kind="retry", reason=reason)
    with pytest.raises(ModelError, match="was lost"):
        await case_runner.work(ScriptedTexts([lost]))
    assert case_runner.journal.kept == {}
    case_runner.journal = case_runner.journal.resumed()
    ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]))
    assert (ending.exit_status, ending.turns) == ("submitted", 3)
    totals = case_runner.ledger.totals()
    assert (totals.calls, totals.estimated) == (4, 1), "the provider may have charged for the lost one"


def journal_of(count: int, **ended: object) -> MemoryJournal:
    """What a process left that started the agent so often: each start had one answer, and ended so."""
    answered = (Exchange(number=1, wire="chat", text="true"),)
    start = {"exit_code": 1, "checkpoint": Checkpoint(base=TREE.commit), "exchanges": answered, **ended}
    runs = [AgentRun.model_validate({"number": number, **start}) for number in range(1, count + 1)]
    kept = {f"parrot.{run.number}": json.dumps({"result": run.model_dump(mode="json")}) for run in runs}
    return MemoryJournal(kept=kept, is_resumed=True)


@pytest.mark.parametrize(("steps", "status"), [(STARTS + 3, "submitted"), (STARTS, "limit_reached")])
async def test_outages_use_up_turns_but_no_starts(case_runner: RunnerHarness, steps: int, status: str) -> None:
    case_runner.journal = journal_of(STARTS, outage="The provider is down.")
    ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]), Budget(steps=steps))
    assert ending.exit_status == status


@pytest.mark.parametrize(
    ("ended", "early"),
    [({"cut_short": "All 2 turns are used."}, "All 2 turns are used."), ({"interrupted": True}, "People wrote")],
)
async def test_work_that_was_never_reviewed_is_not_called_rejected(
    case_runner: RunnerHarness, ended: dict[str, object], early: str
) -> None:
    case_runner.journal = journal_of(STARTS, **ended)
    ending = await case_runner.work(ScriptedTexts([]))
    assert ending.exit_status == "error"
    expected = f"Parrot was started {STARTS} times, and none of its work was reviewed. The last start ended early: "
    assert ending.reason.startswith(expected + early)


async def test_an_outage_after_the_submission_changes_nothing(case_runner: RunnerHarness) -> None:
    down = ModelError("The provider is down.", kind="retry", reason="server_error")
    await case_runner.work(ScriptedTexts([FIX, HAND_IN, down]))
    assert [each.summary for each in case_runner.submitted] == ["add adds"]


async def test_the_limit_is_named_whole_in_a_later_start(case_runner: RunnerHarness) -> None:
    case_runner.verdicts = [ReviewResult(accepted=False, text="no")]
    ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit", "true", "true"]), Budget(steps=5))
    assert (ending.exit_status, ending.reason) == ("limit_reached", "All 5 turns are used.")


async def test_a_killed_start_is_repeated_from_a_clean_tree(case_runner: RunnerHarness) -> None:
    case_runner.journal = MemoryJournal(die_at="parrot.1", moment="during")
    with pytest.raises(Died):
        await case_runner.work(ScriptedTexts(["echo half > /workspace/app.py", "exit"]))
    case_runner.journal = case_runner.journal.resumed()
    ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]))
    assert ending.exit_status == "submitted"
    assert case_runner.patch == {"app.py": FIXED}


async def test_calls_open_at_a_kill_are_settled_as_lost(case_runner: RunnerHarness) -> None:
    """It had more calls open at once than the same start has now: all of them are settled."""
    for call in ("parrot.1.1", "parrot.1.9", "turn.1"):
        case_runner.ledger.reserve(call, 100_000, if_lost=Usage(prompt_tokens=70, cost=70, estimated=True))
    ending = await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]))
    assert ending.exit_status == "submitted"
    totals = case_runner.ledger.totals()
    assert (totals.lost, totals.pending, totals.calls) == (2, 1, 6)
    assert totals.cost == 3 * 70 + 3 * 110
    assert case_runner.ledger.remaining() == 1_000_000 - 2 * 70 - 3 * 110 - 100_000


async def test_messages_of_people_arrive_before_verification(case_runner: RunnerHarness) -> None:
    model = ScriptedTexts([FIX, f"# ada: Mind the sign.\n{HAND_IN}", "exit", HAND_IN, "exit"], case_runner.words)
    ending = await case_runner.work(model)
    assert (ending.exit_status, len(case_runner.submitted)) == ("submitted", 1)
    assert "Mind the sign." not in model.task(2)
    assert "Fix add." in model.task(3)
    assert "From ada, who may ask: Mind the sign." in model.task(3)


async def test_a_resumed_run_gets_messages_at_the_same_point(case_runner: RunnerHarness) -> None:
    """Words of after a start do not change what was made of that start."""
    case_runner.verdicts = [
        ReviewResult(accepted=False, text="Newly failing: test_money."),
        ReviewResult(accepted=True),
    ]
    case_runner.journal = MemoryJournal(die_at="parrot.2", moment="during")
    with pytest.raises(Died):
        await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit", HAND_IN, "exit"]))
    case_runner.words.append(UserMessage(seq=1, author="ada", text="Mind the sign."))
    case_runner.journal, case_runner.submitted = case_runner.journal.resumed(), []
    model = ScriptedTexts([HAND_IN, "exit"])
    ending = await case_runner.work(model)
    assert (ending.exit_status, len(case_runner.submitted)) == ("submitted", 2)
    assert "Newly failing: test_money." in model.task(0)
    assert "Mind the sign." in model.task(0)


REMEMBERS = RECIPE.model_copy(
    update={
        "again": (*RECIPE.command, "again"),
        "files": {path: remembering(program) for path, program in RECIPE.files.items()},
    }
)


async def test_a_resumable_agent_is_interrupted_and_continues(case_runner: RunnerHarness) -> None:
    """It would wait for ever; what it had not finished is still there, and it is told only what is new."""
    case_runner.recipe = REMEMBERS
    model = ScriptedTexts([FIX, "# ada: Mind the sign.\nsleep 1000", HAND_IN, "exit"], case_runner.words)
    ending = await case_runner.work(model)
    assert (ending.exit_status, len(case_runner.submitted)) == ("submitted", 1)
    assert case_runner.patch == {"app.py": FIXED}
    first, *_, news = model.talk(2)
    assert "Fix add." in first
    assert FIX in model.talk(2)
    assert "From ada, who may ask: Mind the sign." in news
    assert "Fix add." not in news
    assert case_runner.ledger.spent() == 4 * 110
    assert case_runner.ledger.totals().pending == 0
    assert case_runner.runner is not None
    assert [done.interrupted for done in case_runner.runner.runs] == [True, False]


async def test_a_resumable_agent_is_told_only_the_objections(case_runner: RunnerHarness) -> None:
    case_runner.recipe, case_runner.verdicts = (
        REMEMBERS,
        [ReviewResult(accepted=False, text="Newly failing."), ReviewResult(accepted=True)],
    )
    model = ScriptedTexts([FIX, HAND_IN, "exit", HAND_IN, "exit"])
    assert (await case_runner.work(model)).exit_status == "submitted"
    first, *_, news = model.talk(3)
    assert "Fix add." in first
    assert "Newly failing." in news
    assert "Fix add." not in news


async def test_in_another_process_it_begins_anew(case_runner: RunnerHarness) -> None:
    """Its conversation may be on another machine."""
    case_runner.recipe, case_runner.verdicts = (
        REMEMBERS,
        [ReviewResult(accepted=False, text="Newly failing."), ReviewResult(accepted=True)],
    )
    case_runner.journal = MemoryJournal(die_at="parrot.2", moment="before")
    with pytest.raises(Died):
        await case_runner.work(ScriptedTexts([FIX, HAND_IN, "exit"]))
    case_runner.journal, case_runner.submitted = case_runner.journal.resumed(), []
    model = ScriptedTexts([HAND_IN, "exit"])
    assert (await case_runner.work(model, key="another-machine")).exit_status == "submitted"
    assert "Fix add." in model.task(0)
    assert "Newly failing." in model.task(0)
    assert case_runner.patch == {"app.py": FIXED}


async def test_without_a_stored_conversation_the_agent_starts_anew(case_runner: RunnerHarness) -> None:
    forgets = ("python3", "-I", "-c", "import sys; sys.exit('no conversation found')")
    case_runner.recipe = REMEMBERS.model_copy(update={"again": forgets})
    case_runner.verdicts = [ReviewResult(accepted=False, text="Newly failing."), ReviewResult(accepted=True)]
    model = ScriptedTexts([FIX, HAND_IN, "exit", HAND_IN, "exit"])
    assert (await case_runner.work(model)).exit_status == "submitted"
    assert "Fix add." in model.task(3)
    assert "Newly failing." in model.task(3)
    assert len(model.talk(3)) == 1


async def test_minutes_end_it(case_runner: RunnerHarness) -> None:
    ending = await case_runner.work(ScriptedTexts([FIX, "sleep 60", "exit"]), Budget(minutes=0.03))
    assert ending.exit_status == "limit_reached"
    assert "minutes are used" in ending.reason


async def test_a_submission_counts_even_if_the_agent_does_not_end(case_runner: RunnerHarness) -> None:
    ending = await case_runner.work(ScriptedTexts([f"{FIX}; {HAND_IN}; sleep 60"]), Budget(minutes=0.1))
    assert ending.exit_status == "submitted"
    assert [each.summary for each in case_runner.submitted] == ["add adds"]
