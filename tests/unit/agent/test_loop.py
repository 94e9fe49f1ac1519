"""The agent's loop: whatever a model answers, it goes on or ends by a rule, and a crash buys no answer twice."""

import random
from pathlib import Path

import pytest

from app.agent.base import ReviewResult
from app.core.errors import SandboxError
from app.core.job import Budget
from app.core.patch import RefusedFile
from app.llm.base import ModelAnswer, ModelInfo, Usage
from app.llm.errors import BudgetError, ModelError
from tests.support.agent_harness import COST, FILES, FIX, SUBMIT, AgentHarness, act, bash, say
from tests.support.memory_journal import CrashMoment, Died
from tests.support.scripted_model import Turn
from tests.unit.agent.test_history import check_protocol

LOOK = act(("view", {"path": "app.py"}))
EMPTY = say("")
CUT = say("I will now", finish="length")
FILTERED = say("", finish="content_filter")
TALK = say("I think the work is done.")
BAD_JSON = act(("bash", "{'command': ls}"))
NO_SUCH_TOOL = act(("run_shell", {"command": "ls"}))
WRONG_EDIT = act(("edit", {"path": "app.py", "old_text": "nowhere", "new_text": "x"}))
BARE_SUBMIT = act(("submit", {"summary": "fixed"}))
REJECTED = ReviewResult(accepted=False, text="test_add fails on the head")
SHRINK = ModelError("too long", kind="shrink", reason="does_not_fit")
GIVE_UP = ModelError("no key", kind="give_up", reason="no_key")


def different(number: int) -> ModelAnswer:
    return act(bash(f"echo {number}"))


def edits(number: int) -> ModelAnswer:
    return act(("write", {"path": f"new_{number}.txt", "content": "x\n"}))


def bulky(number: int) -> ModelAnswer:
    return act(bash(f"seq {number}0000 {number}2000"))


# name: (answers, exit status, words of the reason, turns)
TRANSCRIPTS: dict[str, tuple[list[Turn], str, str, int]] = {
    "fixed and submitted": ([LOOK, FIX, SUBMIT], "submitted", "fixed", 3),
    "several calls in a turn": ([act(bash("ls"), ("view", {"path": "app.py"})), FIX, SUBMIT], "submitted", "fixed", 3),
    "no answer three times": ([EMPTY, EMPTY, EMPTY], "error", "no answer 3 times", 3),
    "no answer, then work": ([EMPTY, EMPTY, FIX, EMPTY, EMPTY, SUBMIT], "submitted", "fixed", 6),
    "talk instead of calls, nothing changed": ([TALK] * 3, "no_change", "stopped without a change", 3),
    "talk instead of submitting": ([FIX, TALK, TALK, TALK], "error", "did not submit", 4),
    "talk, then submission": ([FIX, TALK, SUBMIT], "submitted", "fixed", 3),
    "cut off three times": ([CUT, CUT, CUT], "error", "cut off", 3),
    "cut off, then smaller": ([CUT, CUT, FIX, SUBMIT], "submitted", "fixed", 4),
    "filtered twice": ([FILTERED, FILTERED], "error", "content filter", 2),
    "filtered once": ([FILTERED, FIX, SUBMIT], "submitted", "fixed", 3),
    "arguments that are no JSON": ([BAD_JSON] * 4, "error", "no valid tool call", 4),
    "arguments mended": ([BAD_JSON, BAD_JSON, FIX, SUBMIT], "submitted", "fixed", 4),
    "unknown tools": ([NO_SUCH_TOOL] * 4, "error", "no valid tool call", 4),
    "one useless turn after another": ([EMPTY, CUT, EMPTY, CUT, EMPTY, CUT], "error", "6 turns in a row", 6),
    "the same four times": ([LOOK] * 4, "error", "stuck in a loop", 4),
    "the same pair four times": ([LOOK, different(1)] * 4, "error", "stuck in a loop", 8),
    "the same three four times": ([LOOK, different(1), different(2)] * 4, "error", "stuck in a loop", 12),
    "the same failing command": ([act(bash("false"))] * 4, "error", "stuck in a loop", 4),
    "edits that never apply": (
        [act(("edit", {"path": "app.py", "old_text": f"no {n}", "new_text": "x"})) for n in range(8)],
        "error",
        "8 edits in a row",
        8,
    ),
    "no change submitted twice": ([LOOK, SUBMIT, SUBMIT], "no_change", "nothing needs to be changed", 3),
    "no change, then a change": ([SUBMIT, FIX, SUBMIT], "submitted", "fixed", 3),
    "no reproduction, then one": ([FIX, BARE_SUBMIT, SUBMIT], "submitted", "fixed", 3),
    "no reproduction twice": ([FIX, BARE_SUBMIT, BARE_SUBMIT], "submitted", "fixed", 3),
    "submission among other calls": (
        [FIX, act(bash("ls"), ("submit", {"summary": "s", "reproduction": "r"})), SUBMIT],
        "submitted",
        "fixed",
        3,
    ),
    "two submissions at once": (
        [FIX, act(*[("submit", {"summary": "s", "reproduction": "r"})] * 2), SUBMIT],
        "submitted",
        "fixed",
        3,
    ),
    "all turns used": ([different(n) for n in range(10)], "limit_reached", "All 10 turns", 10),
    "does not fit, then does": ([bulky(1), bulky(2), SHRINK, FIX, SUBMIT], "submitted", "fixed", 4),
    "never fits": ([SHRINK], "error", "does not fit", 0),
    "no longer fits": ([*[bulky(n) for n in range(8)], *[SHRINK] * 3], "error", "does not fit", 8),
    "too little to condense": ([LOOK, SHRINK], "error", "does not fit", 1),
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
async def test_every_transcript_ends_with_the_expected_status(name: str, tmp_path: Path) -> None:
    answers, status, reason, turns = TRANSCRIPTS[name]
    harness = AgentHarness(tmp_path, answers, budget=Budget(steps=10))
    if name == "the same three four times":
        harness.budget = Budget(steps=20)
    ending = await harness.work()
    assert (ending.exit_status, ending.turns) == (status, turns)
    assert reason in ending.reason
    assert harness.model.left == 0


@pytest.mark.parametrize(("answers", "claim"), [([TALK] * 3, "I think the work is done"), ([SUBMIT] * 2, "fixed")])
async def test_no_change_statement_is_recorded_as_a_claim(answers: list[Turn], claim: str, tmp_path: Path) -> None:
    ending = await AgentHarness(tmp_path, answers, budget=Budget(steps=10)).work()
    assert claim in ending.claim
    assert claim not in ending.reason


async def test_accepted_submission_is_the_reviewed_one(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [FIX, SUBMIT])
    ending = await harness.work()
    assert [ending.submission] == harness.submissions
    assert ending.submission is not None
    assert ending.submission.reproduction == "grep -q + app.py"
    assert b"a + b" in (harness.sandbox.workspace / "app.py").read_bytes()


async def test_rejection_is_reported_to_the_model_and_work_continues(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [FIX, SUBMIT, edits(1), SUBMIT], reviews=[REJECTED, ReviewResult(accepted=True)])
    ending = await harness.work()
    assert ending.exit_status == "submitted"
    assert "test_add fails on the head" in harness.seen(2)
    assert len(harness.submissions) == 2


async def test_unchanged_rejected_work_is_not_verified_again(tmp_path: Path) -> None:
    harness = AgentHarness(
        tmp_path, [FIX, SUBMIT, LOOK, SUBMIT, edits(1), SUBMIT], reviews=[REJECTED, ReviewResult(accepted=True)]
    )
    ending = await harness.work()
    assert ending.exit_status == "submitted"
    assert "Nothing has changed since" in harness.seen(4)
    assert len(harness.submissions) == 2


async def test_repeatedly_rejected_submissions_end_the_loop(tmp_path: Path) -> None:
    answers = [turn for n in range(8) for turn in (edits(n), SUBMIT)]
    harness = AgentHarness(tmp_path, answers, reviews=[REJECTED] * 8)
    ending = await harness.work()
    assert ending.exit_status == "error"
    assert ending.submission == harness.submissions[-1]


async def test_reproduction_given_on_request_is_marked(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [FIX, BARE_SUBMIT, SUBMIT])
    await harness.work()
    assert "there is no reproduction" in harness.seen(2)
    assert [submission.reproduction_was_requested for submission in harness.submissions] == [True]


async def test_a_merge_needs_no_reproduction(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [FIX, BARE_SUBMIT], aim="merge")
    assert (await harness.work()).exit_status == "submitted"
    assert [submission.reproduction for submission in harness.submissions] == [""]


async def test_an_answer_needs_no_change(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [LOOK, act(("submit", {"summary": "It subtracts."}))], aim="answer")
    ending = await harness.work()
    assert (ending.exit_status, ending.reason) == ("submitted", "It subtracts.")
    assert (
        harness.model.requests[0].messages[0].content.startswith("You are a software engineer who answers a question")
    )


async def test_submission_beside_other_calls_is_not_reviewed(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, TRANSCRIPTS["submission among other calls"][0])
    await harness.work()
    assert "exit 0" in harness.seen(2, 0)
    assert "only call of its turn" in harness.seen(2, 1)
    assert len(harness.submissions) == 1


async def test_no_call_of_a_truncated_answer_is_executed(tmp_path: Path) -> None:
    cut = act(bash("touch carried-out"), finish="length")
    harness = AgentHarness(tmp_path, [cut, FIX, SUBMIT])
    await harness.work()
    assert not (harness.sandbox.workspace / "carried-out").exists()
    assert "cut off" in harness.notes(1)
    assert not harness.model.requests[1].messages[2].tool_calls


async def test_at_most_sixteen_calls_of_a_turn_are_executed(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [act(*[bash(f"touch f{n}") for n in range(40)]), FIX, SUBMIT])
    await harness.work()
    assert len(list(harness.sandbox.workspace.glob("f*"))) == 16
    assert "24 more calls" in harness.notes(1)


async def test_repetition_is_warned_about_before_it_ends_the_job(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [LOOK, LOOK, LOOK, FIX, SUBMIT])
    assert (await harness.work()).exit_status == "submitted"
    assert "Once more ends the job" in harness.notes(3)


async def test_same_command_after_a_change_is_not_repetition(tmp_path: Path) -> None:
    look = act(bash("cat app.py new_*.txt"))
    answers = [turn for n in range(6) for turn in (edits(n), look)]
    harness = AgentHarness(tmp_path, [*answers, SUBMIT])
    assert (await harness.work()).exit_status == "submitted"


async def test_failing_edits_get_a_hint(tmp_path: Path) -> None:
    wrong = [act(("edit", {"path": "app.py", "old_text": f"no {n}", "new_text": "x"})) for n in range(3)]
    harness = AgentHarness(tmp_path, [*wrong, FIX, SUBMIT])
    await harness.work()
    assert "3 edits in a row did not apply" in harness.notes(3)


async def test_warning_at_four_fifths_of_the_turns_is_given_once(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [different(n) for n in range(10)], budget=Budget(steps=10))
    await harness.work()
    told = [number for number in range(1, 11) if "Four fifths of the turns" in harness.notes(number)]
    assert told == [8]


async def test_warning_at_four_fifths_of_the_budget_is_given_once(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [*[different(n) for n in range(6)], FIX, SUBMIT], budget=Budget(usd=5 * COST))
    await harness.work()
    told = [number for number in range(1, 9) if "Four fifths of the money" in harness.notes(number)]
    assert told == [4]


@pytest.mark.parametrize("error", [GIVE_UP, BudgetError("the cap")])
async def test_errors_the_agent_cannot_fix_are_raised_and_the_job_can_resume(error: Exception, tmp_path: Path) -> None:
    def fail(_: object) -> ModelAnswer:
        raise error

    harness = AgentHarness(tmp_path, [FIX, fail, SUBMIT])
    with pytest.raises(type(error)):
        await harness.work()
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"


async def test_working_minutes_are_counted_without_wall_clock_time(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [different(n) for n in range(20)], budget=Budget(minutes=1))
    ticks = iter(range(0, 10_000, 7))
    harness.clock = lambda: float(next(ticks))
    ending = await harness.work()
    assert ending.exit_status == "limit_reached"
    assert "1 minutes" in ending.reason
    assert ending.turns < 5


async def test_raised_limit_lets_the_job_continue(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [different(1), different(2), FIX, SUBMIT], budget=Budget(steps=2))
    assert (await harness.work()).exit_status == "limit_reached"
    harness.budget = Budget(steps=10)
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    assert harness.model.calls == 4


@pytest.mark.parametrize("moment", ["before", "during", "after"])
@pytest.mark.parametrize(
    "step",
    [f"turn.{n}.{part}" for n in (1, 2, 3, 4) for part in ("answer", "act")] + ["verify.1"],
)
async def test_crash_at_any_step_keeps_the_result_and_pays_no_answer_twice(
    step: str, moment: CrashMoment, tmp_path: Path
) -> None:
    append = act(bash("echo more >> README && echo scratch > junk.txt"))
    answers = [append, LOOK, FIX, SUBMIT]
    lost = step.endswith("answer") and moment == "during"  # the one moment at which an answer is paid for and gone
    turn = int(step.split(".")[1])
    harness = AgentHarness(tmp_path, [*answers[:turn], *answers[turn - 1 :]] if lost else answers)
    harness.journal.die_at, harness.journal.moment = step, moment
    with pytest.raises(Died):
        await harness.work()
    harness.journal = harness.journal.resumed()
    ending = await harness.work()
    assert (ending.exit_status, ending.turns, harness.model.left) == ("submitted", 4, 0)
    patch = await harness.tree.export()
    assert {change.path: change.content for change in patch.changes} == {
        "README": b"adds\nmore\n",
        "app.py": b"def add(a, b):\n    return a + b\n",
        "junk.txt": b"scratch\n",
    }
    tree = harness.steps[2].turn.checkpoint
    assert tree is not None
    assert [state.path for state in tree.files] == ["README", "app.py", "junk.txt"]


@pytest.mark.parametrize("step", ["turn.2.answer", "turn.2.act", "turn.3.answer", "verify.1", "turn.3.act"])
async def test_working_tree_is_restored_first_on_another_machine(step: str, tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [edits(1), FIX, SUBMIT])
    harness.journal.die_at, harness.journal.moment = step, "before"
    with pytest.raises(Died):
        await harness.work()
    (harness.sandbox.workspace / "new_1.txt").unlink()
    for name, content in FILES.items():
        (harness.sandbox.workspace / name).write_bytes(content)
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    patch = await harness.tree.export()
    assert [change.path for change in patch.changes] == ["app.py", "new_1.txt"]
    assert ["new_1.txt" in names for names in harness.reviewed] == [True], "what was verified is not verified again"


async def test_half_changed_tree_is_restored_before_the_turn_is_repeated(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [edits(1), FIX, SUBMIT])
    harness.journal.die_at = "turn.2.act"
    with pytest.raises(Died):
        await harness.work()
    (harness.sandbox.workspace / "half-written.txt").write_text("x")
    (harness.sandbox.workspace / "README").unlink()
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    assert not (harness.sandbox.workspace / "half-written.txt").exists()
    assert (harness.sandbox.workspace / "new_1.txt").exists()
    assert (harness.sandbox.workspace / "README").read_bytes() == FILES["README"]


async def test_only_turns_that_can_change_files_take_a_checkpoint(tmp_path: Path) -> None:
    search = act(("search", {"query": "add"}))
    harness = AgentHarness(tmp_path, [LOOK, search, WRONG_EDIT, FIX, SUBMIT])
    await harness.work()
    assert [step.turn.checkpoint is not None for step in harness.steps] == [False, False, False, True, False]


async def test_the_resumed_conversation_has_the_same_bytes(tmp_path: Path) -> None:
    answers = [act(("view", {"path": "app.py"}), bash("echo hi")), BAD_JSON, FIX, SUBMIT]
    whole = AgentHarness(tmp_path / "whole", answers)
    await whole.work()
    harness = AgentHarness(tmp_path / "crashed", answers)
    harness.journal.die_at, harness.journal.moment = "turn.3.act", "before"
    with pytest.raises(Died):
        await harness.work()
    harness.journal = harness.journal.resumed()
    await harness.work()
    assert harness.model.requests[-1] == whole.model.requests[-1]


async def test_a_compaction_is_the_same_after_a_crash(tmp_path: Path) -> None:
    answers: list[Turn] = [bulky(1), bulky(2), bulky(3), SHRINK, FIX, SUBMIT]
    whole = AgentHarness(tmp_path / "whole", answers)
    await whole.work()
    harness = AgentHarness(tmp_path / "crashed", answers)
    harness.journal.die_at, harness.journal.moment = "turn.4.act", "before"
    with pytest.raises(Died):
        await harness.work()
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    assert harness.model.keys == ["turn.1", "turn.2", "turn.3", "turn.4", "turn.4.2", "turn.5"]
    assert harness.model.requests[-1] == whole.model.requests[-1]


async def test_turn_of_a_lost_sandbox_is_repeated_on_the_tree_before_it(tmp_path: Path) -> None:
    append = act(bash("echo one >> README"), bash("echo two >> README"))
    harness = AgentHarness(tmp_path, [append, FIX, SUBMIT])
    harness.sandbox.lost_at = 2
    with pytest.raises(SandboxError):
        await harness.work()
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    assert (harness.sandbox.workspace / "README").read_bytes() == b"adds\none\ntwo\n"
    assert harness.model.calls == 3


async def test_compaction_keeps_the_job_going_in_a_small_window(tmp_path: Path) -> None:
    small = ModelInfo(name="small", context_window=8_000, max_output=1_000)
    chatter = [act(bash(f"seq {n}000 {n}600")) for n in range(1, 9)]
    harness = AgentHarness(tmp_path, [*chatter, FIX, SUBMIT], info=small, budget=Budget(steps=20))
    assert (await harness.work()).exit_status == "submitted"
    condensed = [m for m in harness.model.requests[-1].messages if "replaced by this digest" in m.content]
    assert len(condensed) == 1
    assert all(harness.model.count(request) + 1_000 <= small.context_window for request in harness.model.requests)


async def test_suite_result_is_reported_once_after_the_turn_it_arrived_in(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path)

    def known_meanwhile(_: object) -> ModelAnswer:
        harness.base_suite = "4 passed before any change"
        return LOOK

    harness.plays(different(1), known_meanwhile, different(2), FIX, SUBMIT)
    harness.journal.die_at, harness.journal.moment = "turn.4.answer", "before"
    with pytest.raises(Died):
        await harness.work()
    harness.base_suite = ""  # the next process may know it later; what the model was told stays the same
    harness.journal = harness.journal.resumed()
    assert (await harness.work()).exit_status == "submitted"
    last = [message.content for message in harness.model.requests[-1].messages]
    assert [step.turn.base_suite for step in harness.steps] == ["", "4 passed before any change", "", "", ""]
    assert sum("4 passed before any change" in content for content in last) == 1


async def test_a_compaction_keeps_the_suites_result(tmp_path: Path) -> None:
    small = ModelInfo(name="small", context_window=8_000, max_output=1_000)
    chatter = [act(bash(f"seq {n}000 {n}600")) for n in range(1, 9)]
    harness = AgentHarness(tmp_path, [*chatter, FIX, SUBMIT], info=small, budget=Budget(steps=20))
    harness.base_suite = "4 passed before any change"
    assert (await harness.work()).exit_status == "submitted"
    digests = [m.content for m in harness.model.requests[-1].messages if "replaced by this digest" in m.content]
    assert ["4 passed before any change" in content for content in digests] == [True]


async def test_refused_paths_are_reported_once(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [FIX, edits(1), SUBMIT])
    harness.tree.refusals = (RefusedFile(path=".git/hooks/x", reason="git's own"),)
    await harness.work()
    assert ".git/hooks/x: git's own" in harness.notes(1)
    assert harness.notes(2) == ""


async def test_calls_of_one_turn_share_the_output_limit(tmp_path: Path) -> None:
    harness = AgentHarness(tmp_path, [act(*[bash("seq 1 9000")] * 16), FIX, SUBMIT])
    await harness.work()
    assert sum(len(seen.text) for seen in harness.steps[0].turn.observations) < 16 * 3_500


async def test_provider_usage_decides_when_the_window_is_full(tmp_path: Path) -> None:
    """A provider that counts far more tokens than the text suggests is believed."""
    heavy = bulky(3).model_copy(update={"usage": Usage(prompt_tokens=127_000)})
    harness = AgentHarness(tmp_path, [bulky(1), bulky(2), heavy, FIX, SUBMIT])
    ending = await harness.work()
    assert ending.exit_status == "submitted"
    assert any("replaced by this digest" in m.content for m in harness.model.requests[3].messages)


@pytest.mark.parametrize("seed", range(12))
async def test_any_sequence_of_answers_ends_within_the_budget(seed: int, tmp_path: Path) -> None:
    kinds: list[Turn] = [LOOK, EMPTY, CUT, FILTERED, TALK, BAD_JSON, NO_SUCH_TOOL, WRONG_EDIT, BARE_SUBMIT, SUBMIT]
    kinds += [different(1), different(2), edits(1), edits(2), FIX]
    answers = random.Random(seed).choices(kinds, k=25)
    harness = AgentHarness(tmp_path, answers, reviews=[REJECTED] * 25, budget=Budget(steps=25))
    ending = await harness.work()
    assert ending.exit_status in {"no_change", "limit_reached", "error"}
    assert ending.reason
    for request in harness.model.requests:
        check_protocol(request)
