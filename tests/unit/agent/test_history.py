"""The conversation only grows at its end, byte for byte, until one compaction makes it much smaller."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest

from app.agent.actions import specs
from app.agent.history import ConversationHistory, digest, messages_of
from app.agent.prompts import head
from app.agent.step import Checkpoint, FileState, Observation, Step, StoredAnswer, StoredTurn
from app.core.job import UserMessage
from app.llm.base import ModelAnswer, ModelInfo, ModelRequest, ToolCall, Usage

INFO = ModelInfo(name="m", context_window=20_000, max_output=2_000)


def step(number: int, text: str = "output", command: str = "pytest -q", usage: Usage | None = None) -> Step:
    call = ToolCall(id=f"c{number}", name="bash", arguments=json.dumps({"command": command}))
    seen = Observation(call_id=call.id, tool="bash", outcome="ok", text=text, summary="exit 1, 2.0 s")
    answer = ModelAnswer(content=f"I look at part {number}.", tool_calls=(call,), usage=usage or Usage())
    tree = Checkpoint(base="0" * 40, files=(FileState(path=f"f{number}.py", mode="100644", digest="d"),))
    return Step(
        StoredAnswer(answer=answer), StoredTurn(number=number, calls=(call,), observations=(seen,), checkpoint=tree)
    )


def history(count: int, text: str = "output", info: ModelInfo = INFO) -> ConversationHistory:
    made = ConversationHistory(head("the brief"), specs(), info)
    for number in range(1, count + 1):
        made.add(step(number, text))
    return made


def test_each_request_begins_with_the_bytes_of_the_previous_one() -> None:
    made, before = history(0), b""
    for number in range(1, 30):
        made.add(step(number))
        messages = b"".join(message.model_dump_json().encode() for message in made.request().messages)
        assert messages.startswith(before)
        before = messages


def test_stored_steps_give_the_same_request_bytes() -> None:
    made = history(5)
    again = ConversationHistory(head("the brief"), specs(), INFO)
    for asked, turn in made.steps:
        again.add(Step(*(type(noun).model_validate_json(noun.model_dump_json()) for noun in (asked, turn))))  # type: ignore[arg-type]
    assert again.request() == made.request()


def test_every_tool_call_has_its_result() -> None:
    check_protocol(history(12).request())


def check_protocol(request: ModelRequest) -> None:
    """What every provider insists on: each call answered at once, by its id; no answer without a call."""
    open_calls: list[str] = []
    for message in request.messages:
        if message.role == "tool":
            assert message.tool_call_id == open_calls.pop(0)
        else:
            assert not open_calls
            open_calls = [call.id for call in message.tool_calls]
        assert message.content or message.tool_calls
    assert not open_calls


def test_notes_follow_the_observations() -> None:
    asked, turn = step(1)
    roles = [message.role for message in messages_of(Step(asked, turn.model_copy(update={"notes": ("a", "b")})))]
    assert roles == ["assistant", "tool", "user"]


def test_an_empty_answer_is_not_sent_back_empty() -> None:
    empty = Step(StoredAnswer(answer=ModelAnswer()), StoredTurn(number=1, notes=("Your answer was empty.",)))
    assert messages_of(empty)[0].content == "(no answer)"


def test_the_reserve_fits_the_model() -> None:
    assert history(0).request().max_tokens == 2_000
    assert history(0, info=ModelInfo("m", 4_000, 64_000)).reserve == 1_000
    assert history(0, info=ModelInfo("m", 200_000, 64_000)).reserve == 8_192


def test_history_is_full_when_prompt_and_reserve_exceed_the_window() -> None:
    made = history(0)
    while not made.full():
        made.add(step(len(made.steps) + 1, "x" * 2_000))
    assert INFO.context_window - 2_000 - 1_000 < made.tokens() < INFO.context_window


def test_provider_token_count_is_used() -> None:
    made = history(3)
    made.add(step(4, usage=Usage(prompt_tokens=19_000)))
    assert made.full()


def test_compaction_goes_down_to_two_fifths_in_one_jump() -> None:
    made = history(40, "x" * 1_500)
    assert made.full()
    assert made.compact()
    assert made.tokens() <= INFO.context_window * 0.4
    check_protocol(made.request())


def test_compaction_keeps_head_digest_and_the_last_turns() -> None:
    made = history(40, "x" * 1_500)
    made.compact()
    messages = made.request().messages
    assert messages[:2] == head("the brief")
    assert "replaced by this digest" in messages[2].content
    assert "12. bash pytest -q → exit 1, 2.0 s" in messages[2].content
    assert messages[-1].content == "x" * 1_500
    assert messages[-1].tool_call_id == "c40"


def test_the_prefix_is_stable_again_after_a_compaction() -> None:
    made = history(40, "x" * 1_500)
    made.compact()
    before = made.request().messages
    made.add(step(41))
    assert made.request().messages[: len(before)] == before


def test_a_second_compaction_still_knows_the_first_turns() -> None:
    made = history(20, "x" * 3_000)
    assert made.compact()
    for number in range(21, 41):
        made.add(step(number, "x" * 3_000))
    assert made.compact()
    text = made.request().messages[2].content
    assert "1. bash pytest" in text
    assert "25. bash pytest" in text


WIDE = ModelInfo(name="m", context_window=200_000, max_output=8_000, input_price=3_000_000, cached_price=300_000)


def until_dear(info: ModelInfo, most: int = 200) -> int:
    """Turns of about a thousand tokens until the price speaks for a compaction."""
    made = history(0, info=info)
    while not made.should_compact_for_cost() and len(made.steps) < most:
        made.add(step(len(made.steps) + 1, "word " * 700))
    return len(made.steps)


def test_prompt_is_compacted_once_resending_it_costs_more() -> None:
    """At a tenth of the price for cached tokens; windows have no part in it."""
    made = history(until_dear(WIDE), "word " * 700, WIDE)
    assert not made.full()
    before = made.tokens()
    assert 16_000 < before < 40_000
    assert made.compact()
    assert made.tokens() < before / 2
    assert not made.should_compact_for_cost()


def test_a_short_job_is_never_compacted_for_its_price() -> None:
    assert until_dear(WIDE) > 12


@pytest.mark.parametrize(
    ("prices", "later"),
    [
        ((3_000_000, 30_000, 0), True),  # what is cached costs next to nothing
        ((3_000_000, 300_000, 3_750_000), True),  # to write the cache costs more
        ((3_000_000, 3_000_000, 0), False),  # there is no cache
    ],
)
def test_prices_decide_when_to_compact(prices: tuple[int, int, int], *, later: bool) -> None:
    fresh, cached, written = prices
    other = replace(WIDE, input_price=fresh, cached_price=cached, cache_write_price=written)
    assert (until_dear(other) > until_dear(WIDE)) is later


def test_unknown_prices_use_the_usual_proportion() -> None:
    assert until_dear(replace(WIDE, input_price=0, cached_price=0)) == until_dear(WIDE)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_short_history_cannot_be_compacted(count: int) -> None:
    assert not history(count).compact()


def test_a_brief_that_fills_the_window_cannot_be_compacted() -> None:
    made = ConversationHistory(head("x" * 60_000), specs(), INFO)
    made.add(step(1, "y" * 10_000))
    assert made.full()
    assert not made.compact()


def test_digest_lists_failing_tests_code_locations_and_changed_files() -> None:
    output = (
        "app/money.py:31: AssertionError\nFAILED tests/test_money.py::test_add - assert 1\nERROR tests/x.py::test_y"
    )
    text = digest([step(1), step(2, output)], 4_000)
    assert "Failing tests last seen (turn 2):\ntests/test_money.py::test_add\ntests/x.py::test_y" in text
    assert "app/money.py:31" in text
    assert "Files changed so far:\nf2.py" in text
    assert "1. said: I look at part 1." in text


@pytest.mark.parametrize(
    "line",
    [
        "FAIL: test_add (tests.test_money.Case.test_add)",
        "--- FAIL: TestAdd (0.00s)",
        "test money::adds ... FAILED",
        "not ok 3 - adds two amounts",
        "✖ adds two amounts",
        "tests/t.py::test_a FAILED [ 50%]",
    ],
)
def test_digest_finds_failures_of_many_test_runners(line: str) -> None:
    assert "Failing tests last seen" in digest([step(1, line)], 4_000)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["a::", "a::b[", " \n", "\n", "FAILED a:\n"])
def test_no_output_holds_up_the_search_for_failures(piece: str) -> None:
    assert "Failing tests last seen (turn 1):\nt.py::a" in digest(
        [step(1, f"{piece * 100_000}\nFAILED t.py::a")], 4_000
    )


def test_digest_takes_results_of_piped_commands_from_the_output() -> None:
    output = "exit 0, 3.0 s\n....\n===== 3 failed, 12 passed in 0.4s =====\n(the whole output: /tmp/output/1-1.txt)"
    assert "1. bash pytest -q → exit 1, 2.0 s: 3 failed, 12 passed in 0.4s" in digest([step(1, output)], 4_000)


def test_digest_lists_old_failures_with_newer_results() -> None:
    steps = [step(1, "FAILED tests/t.py::test_a[x = 1] - assert"), step(2), step(3, "12 passed in 0.4s"), step(4)]
    text = digest(steps, 4_000)
    assert (
        "Failing tests last seen (turn 1; since then, in turn 3: 12 passed in 0.4s):\ntests/t.py::test_a[x = 1]" in text
    )


def test_the_digest_keeps_the_code_of_the_last_edits() -> None:
    def edited(number: int, text: str) -> Step:
        call = ToolCall(id="c", name="edit", arguments='{"path": "f.py", "old_text": "a", "new_text": "b"}')
        seen = Observation(call_id="c", tool="edit", outcome="ok", text=text, summary="line 1 changed")
        return Step(
            StoredAnswer(answer=ModelAnswer(tool_calls=(call,))),
            StoredTurn(number=number, calls=(call,), observations=(seen,)),
        )

    steps = [edited(1, "Edited f.py, line 9:\n" + "9\told = 1\n" * 200), edited(2, "Edited f.py, line 1:\n1\tnew = 2")]
    text = digest([*steps, step(3)], 4_000)
    assert "The last edits, as they were answered:\nEdited f.py, line 1:\n1\tnew = 2" in text
    assert "old = 1" not in text


def test_digest_shortens_turns_before_it_drops_any() -> None:
    text = digest([step(number, command="x" * 200) for number in range(20)], 3_000)
    assert "left out" not in text
    assert f"0. bash {'x' * 60}… → exit 1" in text


def test_digest_keeps_its_size_limit_and_counts_dropped_lines() -> None:
    text = digest([step(number, command="x" * 200) for number in range(300)], 3_000)
    assert len(text) <= 3_000
    assert "lines are left out)" in text
    assert "299. bash" in text


def test_task_plan_messages_and_failures_survive_two_compactions() -> None:
    """The task, the plan in the brief, people's words, places, errors, failing tests and what verification said."""
    made = ConversationHistory(head("the brief, with its plan"), specs(), INFO)
    failing = (
        "app/money.py:31: in split\nE       ValueError: one cent is lost\nFAILED tests/test_money.py::test_split - x"
    )
    made.add(step(1, failing))
    words = (UserMessage(seq=10, author="octocat", text="Keep split() public."),)
    asked, turn = step(2)
    made.add(Step(asked, turn.model_copy(update={"user_messages": words})))
    asked, turn = step(3, "The suite fails newly: tests/test_bill.py::test_all")
    made.add(Step(asked, turn.model_copy(update={"fate": "rejected"})))
    for first in (4, 40):
        for number in range(first, first + 30):
            made.add(step(number, "nothing to see\n" * 100))
        assert made.compact()
    text = made.request().messages[2].content
    assert made.request().messages[:2] == head("the brief, with its plan")
    for kept in (
        "From octocat, who may ask: Keep split() public.",
        "app/money.py:31",
        "E       ValueError: one cent is lost",
        "tests/test_money.py::test_split",
        "Of the submission in turn 3 verification said:\nThe suite fails newly: tests/test_bill.py::test_all",
        "Files changed so far:\nf61.py",
    ):
        assert kept in text


def test_digest_counts_dropped_facts() -> None:
    failing = "\n".join(f"FAILED tests/test_{'x' * 60}.py::test_{n} - x" for n in range(40))
    text = digest([step(1, failing)], 1_500)
    assert len(text) <= 1_500
    assert "more lines)" in text


@pytest.mark.parametrize(
    ("counted", "believed"),
    [(-5, False), (0, False), (3, False), (19_000, True), (20_001, False), (10**30, False)],
)
def test_impossible_token_counts_are_ignored(counted: int, believed: bool) -> None:
    made = history(3, "x" * 700)
    estimate = made.tokens()
    made.add(step(4, "", usage=Usage(prompt_tokens=counted)))
    assert (made.tokens() > 19_000) == believed
    assert believed or made.tokens() < estimate + 400


def test_refused_request_is_compacted_before_it_is_sent_again() -> None:
    made = history(9, "x" * 3_000)
    assert not made.full()
    made.refused()
    assert made.full()
    assert made.compact()
    assert not made.full()
    assert made.window < INFO.context_window


def priced(cached: int) -> ModelInfo:
    return ModelInfo("m", 1_000_000, 8_000, input_price=1_000_000, cached_price=cached, output_price=1)


@pytest.mark.parametrize(("cached", "earlier"), [(1_000_000, True), (100_000, False)])
def test_long_history_is_compacted_when_resending_it_costs_more(cached: int, earlier: bool) -> None:
    """Sooner where a cache saves nothing; never while it is short, whatever the price."""
    made = history(0, info=priced(cached))
    while not made.should_compact_for_cost():
        made.add(step(len(made.steps) + 1, "x" * 20_000))
    turns, tokens = len(made.steps), made.tokens()
    assert tokens > 10_000
    assert (turns <= 3) == earlier
    assert made.compact()
    assert made.tokens() < tokens / 2
    assert not made.should_compact_for_cost()


def test_compaction_for_price_is_rare() -> None:
    made, condensed = history(0, info=priced(100_000)), []
    for number in range(1, 301):
        made.add(step(number, "x" * 2_000))
        if made.should_compact_for_cost() and made.compact():
            condensed.append(number)
    assert condensed
    assert min(after - before for before, after in pairwise([0, *condensed])) >= 12


def test_number_of_turns_alone_does_not_trigger_compaction() -> None:
    made = history(2_000, "ok", info=ModelInfo("m", 10**7, 8_000))
    before = len(made.request().messages)
    assert before == 2 + 2 * 2_000
    assert not made.full()
