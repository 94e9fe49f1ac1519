"""A plan comes out of any answer and any edited file, or the person is told which line is wrong."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.actions import specs
from app.agent.prompts import head, render_brief, render_planning
from app.core.errors import ExitCode
from app.core.job import Budget, Job, QuestionAnswers, UserMessage
from app.core.plan import Plan, PlanError, parse_plan_file, render_plan, render_plan_file
from app.core.task import Issue, Task, TaskSection
from app.llm.base import Message
from app.llm.errors import BudgetError, ModelError
from app.pipeline.planner import PlanConversation, parse_plan
from tests.support.agent_harness import UnbudgetedModel, act, say
from tests.support.memory_journal import Died, MemoryJournal
from tests.support.scripted_model import ScriptedModel, Turn

ISSUE = Issue(title="Totals are wrong", body="They are 1 cent off.")
PLAN = Plan(
    summary="Round once, at the end.",
    hypotheses=("each line is rounded", "cents are floats"),
    candidate_files=("app/money.py", "tests/test_money.py"),
    steps=("Add a failing test.", "Round the sum."),
    reproduce="pytest -q tests/test_money.py",
    verify="pytest -q tests",
)
ANSWER = PLAN.model_dump_json()
SHRINK = ModelError("too long", kind="shrink", reason="does_not_fit")


SECTION = TaskSection(title="Failing check", text="1 failed, 2 passed")


def job() -> Job:
    task = Task(repository="r", issue=ISSUE, base="0" * 40, base_ref="main", slug="s", sections=(SECTION,))
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Job(id="j", task=task, branch="b", budget=Budget(), model="m", created_at=now)


def conversation(*, tools: bool = False) -> PlanConversation:
    brief = render_brief(job(), repository_map="app/money.py")
    smallest = render_brief(job().model_copy(update={"task": job().task.model_copy(update={"sections": ()})}))
    return PlanConversation(brief, render_planning(job(), brief), smallest, specs() if tools else ())


async def plan_from(
    *turns: Turn, journal: MemoryJournal | None = None, made: PlanConversation | None = None
) -> tuple[Plan, ScriptedModel]:
    model = ScriptedModel(turns)
    made = made or conversation()
    plan = await made.make_plan(UnbudgetedModel(model), journal or MemoryJournal(), ISSUE.title)
    assert model.left == 0
    return plan, model


async def test_plan_is_the_first_turn_of_the_conversation() -> None:
    made = conversation(tools=True)
    plan, model = await plan_from(say(ANSWER), made=made)
    assert plan == made.plan == PLAN
    assert model.keys == ["plan"]
    request = model.requests[0]
    assert request.tools == specs()
    assert request.messages[0] == head("")[0]
    assert "They are 1 cent off." in request.messages[1].content
    assert "app/money.py" in request.messages[1].content
    assert SECTION.text in request.messages[1].content
    assert made.turns == (request.messages[1], Message(role="assistant", content=ANSWER))


async def test_model_may_skip_the_plan_and_begin_to_work() -> None:
    made = conversation(tools=True)
    plan, _ = await plan_from(act(("bash", "{}")), made=made)
    assert plan == Plan(summary=ISSUE.title)
    assert made.begun is not None
    assert [call.name for call in made.begun.tool_calls] == ["bash"]
    assert [message.role for message in made.turns] == ["user"]


async def test_planner_without_tools_repairs_a_tool_call() -> None:
    made = conversation()
    plan, model = await plan_from(act(("bash", "{}")), say(ANSWER), made=made)
    assert plan == PLAN
    assert made.begun is None
    assert model.keys == ["plan", "plan.repair"]


async def test_invalid_plan_is_repaired_once() -> None:
    made, model = await plan_from(say("I would fix it."), say(ANSWER))
    assert made == PLAN
    assert model.keys == ["plan", "plan.repair"]
    assert "could not be used as a plan: it is not a JSON object" in model.requests[1].messages[-1].content


@pytest.mark.parametrize("answer", ["", "no", "{}", '{"summary": ""}', "[1]", '{"summary": 3}', "{" * 5_000])
async def test_two_invalid_answers_give_a_minimal_plan(answer: str) -> None:
    made = conversation()
    plan, _ = await plan_from(say(answer), say(answer), made=made)
    assert plan == Plan(summary="Totals are wrong")
    assert made.turns == ()


async def test_too_large_planning_request_is_retried_with_the_issue_only() -> None:
    made, model = await plan_from(SHRINK, say(ANSWER))
    assert made == PLAN
    assert "They are 1 cent off." in model.requests[1].messages[1].content
    assert "app/money.py" not in model.requests[1].messages[1].content
    assert SECTION.text not in model.requests[1].messages[1].content


async def test_issue_that_never_fits_gets_a_minimal_plan() -> None:
    made = conversation()
    assert (await plan_from(SHRINK, SHRINK, made=made))[0] == Plan(summary="Totals are wrong")
    assert made.turns == ()


@pytest.mark.parametrize("error", [ModelError("no key", kind="give_up", reason="no_key"), BudgetError("cap")])
async def test_fatal_model_errors_are_raised(error: ModelError | BudgetError) -> None:
    def fail(_: object) -> None:
        raise error

    with pytest.raises(type(error)):
        await plan_from(fail)  # type: ignore[arg-type]


async def test_planning_answer_is_not_paid_twice() -> None:
    model = ScriptedModel([say("useless"), say(ANSWER)])
    journal = MemoryJournal(die_at="plan.repair.answer", moment="after")
    with pytest.raises(Died):
        await conversation().make_plan(UnbudgetedModel(model), journal, ISSUE.title)
    resumed = conversation()
    assert await resumed.make_plan(UnbudgetedModel(model), journal.resumed(), ISSUE.title) == PLAN
    assert [message.role for message in resumed.turns] == ["user", "assistant", "user", "assistant"]
    assert model.calls == 2


def answered(text: str) -> QuestionAnswers:
    return QuestionAnswers(questions=("Which currency?",), messages=(UserMessage(seq=1, author="octocat", text=text),))


async def test_new_plan_continues_the_conversation_with_the_answers() -> None:
    made, journal = conversation(), MemoryJournal()
    _, first = await plan_from(say(ANSWER), made=made, journal=journal)
    model = ScriptedModel([say(ANSWER)])
    await made.make_plan(UnbudgetedModel(model), journal, ISSUE.title, [answered("Euro, please.")])
    assert model.keys == ["plan.2"]
    messages = model.requests[0].messages
    assert messages[:2] == first.requests[0].messages
    assert "- Which currency?\n\noctocat answered: Euro, please." in messages[-1].content
    assert "No more questions" not in messages[-1].content
    assert [message.role for message in made.turns] == ["user", "assistant", "user", "assistant"]


async def test_last_planning_round_forbids_questions() -> None:
    model = ScriptedModel([SHRINK, say(ANSWER)])
    answers = [answered("Hm."), answered("Hm!")]
    await conversation().make_plan(UnbudgetedModel(model), MemoryJournal(), ISSUE.title, answers)
    assert model.keys == ["plan.3", "plan.3.small"]
    for request in model.requests:
        assert "No more questions can be asked" in request.messages[1].content


@pytest.mark.parametrize("nothing", [[], None, "", "None", ["none."], ["N/A", "No questions."]])
def test_texts_meaning_no_question_are_dropped(nothing: object) -> None:
    assert parse_plan(json.dumps({"summary": "x", "questions": nothing})).questions == ()


def test_at_most_three_questions_are_asked() -> None:
    many = [f"Question {number}?" for number in range(9)]
    assert parse_plan(json.dumps({"summary": "x", "questions": many})).questions == tuple(many[:3])


def test_older_stored_plan_without_questions_is_read() -> None:
    kept = PLAN.model_dump(mode="json")
    del kept["questions"]
    assert Plan.model_validate(kept) == PLAN


@pytest.mark.parametrize(
    "text",
    [
        ANSWER,
        f"```json\n{ANSWER}\n```",
        f"```\n{ANSWER}\n```\nI hope this helps.",
        f"Here is the plan:\n{ANSWER}",
        f"{ANSWER}\n\nThis plan {{covers}} it.",
        json.dumps({"plan": PLAN.model_dump()}),
        json.dumps({**PLAN.model_dump(), "confidence": 0.9, "notes": None}),
        json.dumps(ANSWER),
        json.dumps(PLAN.model_dump(), indent=2).replace('end."', 'end.\n"'),
    ],
)
def test_plans_written_by_models_are_parsed(text: str) -> None:
    assert parse_plan(text) == PLAN


def test_plan_parts_of_other_shapes_are_parsed() -> None:
    answer = {
        "summary": "Fix\n it.",
        "steps": "look\nfix\n",
        "hypotheses": [{"cause": "rounding", "why": "floats"}, None, "other"],
        "candidate_files": None,
        "reproduce": ["cd x", "pytest"],
        "verify": "\x1b[31mpytest\x1b[0m",
    }
    made = parse_plan(json.dumps(answer))
    assert made.summary == "Fix it."
    assert made.steps == ("look", "fix")
    assert made.hypotheses == ("rounding, floats", "other")
    assert (made.reproduce, made.verify) == ("cd x && pytest", "pytest")


@pytest.mark.parametrize(
    "answer", [{"summary": "x", "steps": ["s"] * 31}, {"summary": "x" * 4_001}, {"summary": "x", "verify": "v" * 4_001}]
)
def test_unreadable_plan_is_refused(answer: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        parse_plan(json.dumps(answer))


# files

TEXT = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=40)
LINES = st.lists(TEXT.filter(str.strip), max_size=4).map(tuple)


@given(
    st.builds(
        Plan,
        summary=st.text(max_size=200).filter(str.strip),
        hypotheses=LINES,
        candidate_files=LINES,
        steps=LINES,
        questions=LINES,
        reproduce=st.text(max_size=80),
        verify=TEXT,
    )
)
def test_yaml_plan_file_round_trips(plan: Plan) -> None:
    text = render_plan_file(plan)
    assert parse_plan_file(text) == plan


WORDS = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 .,:;/_()'\"=`*<>&$-]{0,38}[A-Za-z0-9.)]", fullmatch=True)
ITEMS = st.lists(WORDS, max_size=4).map(tuple)


@given(
    st.builds(
        Plan,
        summary=WORDS,
        hypotheses=ITEMS,
        candidate_files=ITEMS,
        steps=ITEMS,
        questions=ITEMS,
        reproduce=st.one_of(st.just(""), WORDS, st.just("cat <<'X'\n```\n# no heading\nX\npytest")),
        verify=WORDS,
    )
)
def test_plan_in_markdown_is_read(plan: Plan) -> None:
    lists = {"Likely causes": plan.hypotheses, "Files": plan.candidate_files, "Steps": plan.steps}
    parts = ["# Plan", plan.summary]
    for title, items in {**lists, "Questions": plan.questions}.items():
        parts += [f"## {title}", "\n".join(f"- {item}" for item in items)] if items else []
    for title, command in {"Reproduce": plan.reproduce, "Verify": plan.verify}.items():
        parts += [f"## {title}", f"````sh\n{command}\n````"] if command else []
    assert parse_plan_file("\n\n".join(parts)) == plan


def test_plan_files_are_readable_text() -> None:
    assert render_plan(PLAN).split("\n\n") == [
        "Round once, at the end.",
        "Likely causes:\n- each line is rounded\n- cents are floats",
        "Files:\n- app/money.py\n- tests/test_money.py",
        "Steps:\n- Add a failing test.\n- Round the sum.",
        "Reproduce: pytest -q tests/test_money.py",
        "Verify: pytest -q tests",
    ]
    assert render_plan(Plan(summary="x")) == "x"
    assert render_plan(Plan(summary="x", questions=("a?", "b?"))) == "x\n\nQuestions:\n- a?\n- b?"


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        ("summary: fix it\n", Plan(summary="fix it")),
        ("summary: no\nsteps:\n- yes\n- 12\n- look: here\n", Plan(summary="no", steps=("yes", "12", "look: here"))),
        ("summary: x\nsteps: one\nverify:\n", Plan(summary="x", steps=("one",))),
        ('{"summary": "x", "steps": ["a"]}', Plan(summary="x", steps=("a",))),
        ("\ufeffsummary: x\r\nverify: y\r\n", Plan(summary="x", verify="y")),
        ("Just fix the rounding.\n", Plan(summary="Just fix the rounding.")),
        (
            "# Plan\n\nFix it.\n\n## Steps\n1. one\n2) two\n   more\n* [x] three\n",
            Plan(summary="Fix it.", steps=("one", "two more", "three")),
        ),
        ("Fix.\n### Reproduce:\n`pytest -k x`\n", Plan(summary="Fix.", reproduce="pytest -k x")),
        (
            "Fix.\n# Verify\n```bash\n# a comment\nmake test\n```\n",
            Plan(summary="Fix.", verify="# a comment\nmake test"),
        ),
        (
            "## Summary\nFix.\n## Hypotheses\n- a\n## Candidate files\n- b\n",
            Plan(summary="Fix.", hypotheses=("a",), candidate_files=("b",)),
        ),
    ],
)
def test_hand_written_plan_files_are_parsed(text: str, plan: Plan) -> None:
    assert parse_plan_file(text) == plan


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("x" * 64_001, "64,001 characters"),
        ("steps:\n- a\n", "no summary"),
        ("summary:\n", "no summary"),
        ("summary: x\nsteeps: [a]\n", "line 2: 'steeps' is not a key"),
        ("sumary: x\n", "line 1: 'sumary' is not a key"),
        ("summary: x\nsummary: y\n", "line 2: 'summary' is there twice"),
        ("summary: x\nsteps:\n  a: b\n", "line 3: must be a list"),
        ("summary: [x]\n", "line 1: summary must be a text"),
        ("summary: x\nsteps: [a\n", "line 3: "),
        ("summary: x\n\tverify: y\n", "line 2: "),
        ("summary: &a x\nverify: *a\n", "line 2: aliases are not allowed"),
        ("Fix.\n## Stepps\n- a\n", "line 2: 'Stepps' is not a section"),
        ("Fix.\n## Steps\n- a\n## Steps\n- b\n", "line 4: the section 'Steps' appears twice"),
        ("## Steps\n- a\n", "no summary"),
        ("summary: x\nsteps:\n" + "- a\n" * 31, "steps has 31 items"),
        ("summary: " + "x" * 5_000, "5,000 characters"),
        ("summary: " + "[" * 50_000, "line 1: nested too deep"),
        ("summary: x\n--- \nsummary: y\n", "line "),
    ],
)
def test_errors_in_plan_files_name_their_line(text: str, said: str) -> None:
    with pytest.raises(PlanError) as error:
        parse_plan_file(text)
    assert said in error.value.message
    assert error.value.code is ExitCode.PLAN_INVALID
    assert "summary" in error.value.hint


@given(st.text(max_size=300))
def test_any_plan_file_gives_a_plan_or_a_plan_error(text: str) -> None:
    try:
        made = parse_plan_file(text)
    except PlanError:
        return
    assert made.summary.strip()


def test_edited_plan_file_is_read_from_disk(tmp_path: Path) -> None:
    file = tmp_path / "plan.yml"
    file.write_text(render_plan_file(PLAN).replace("Round the sum.", "Round the sum, half up."))
    assert parse_plan_file(file.read_text()).steps[1] == "Round the sum, half up."
