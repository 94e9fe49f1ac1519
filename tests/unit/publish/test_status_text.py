"""The status comment: what people need in each state, the plan to be edited, and nobody's words but ours active."""

import re
from dataclasses import replace
from datetime import timedelta
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agent.stop_rules import AgentOutcome, check_budget
from app.core.examples import Because, JudgedExample, PlanExamples, ProgramRun
from app.core.job import Budget, Job, JobResult, JobState
from app.core.model_usage import ModelNames, Totals
from app.core.plan import Plan, parse_plan_file, render_plan
from app.jobs.context import JobContext
from app.jobs.store import ProgressRow
from app.publish.effects import MAX_BODY, MAX_COMMENT
from app.publish.status_text import (
    ATTEMPT_SHOWN,
    KEPT_IN_RECORD,
    KEPT_ON_SERVER,
    NOT_KEPT,
    SHOWN_AS_PROGRAM,
    StatusView,
    attempt_diff,
    error_id,
    read_plan,
    render_status,
)
from tests.support.pull_requests import pull_request, verification
from tests.support.server_jobs import START, job, job_context
from tests.unit.publish.test_markdown import CASES, JOINED, PARSER, flat

STATES: tuple[JobState, ...] = get_args(JobState)
PLAN = Plan(
    summary="Half cents are rounded down.",
    steps=("Round half up.", "Add a test."),
)
TOTALS = Totals(calls=9, prompt_tokens=60_000, completion_tokens=2_000, cost=420_000)
WORKING: tuple[JobState, ...] = ("queued", "planning", "working", "verifying", "publishing")
PAGE = "https://bot.example/jobs/j1"


def row(kind: Any, text: str) -> ProgressRow:
    return ProgressRow(1, START, kind, text)


SHOWN = JudgedExample(
    name="1",
    behaviour="Half a cent is rounded up.",
    because=Because(quote="0.125 must become 0.13", source="issue"),
    run="python",
    program="from shop import total\nprint(total('0.125'))\n",
    args=("--all",),
    stdout="0.13\n",
    quoted=True,
    base=(ProgramRun(stdout="0.12\n"),),
)
KEPT = SHOWN.model_copy(update={"name": "2", "kind": "keeps", "behaviour": "Whole cents stay.", "stdout": "0.12\n"})
REPRODUCTIONS: dict[str, dict[str, Any]] = {
    "already_works": {"examples": PlanExamples(already=(KEPT,))},
    "reproduced": {
        "summary": "Half cents are cut off.",
        "plan": PLAN.model_copy(update={"examples": (SHOWN.written, KEPT.written)}),
        "examples": PlanExamples(examples=(SHOWN, KEPT)),
    },
    "not_reproduced": {
        "summary": "Totals of one, two and a thousand lines came out right.",
        "plan": Plan(summary="", questions=("Which version?", "Which currency?")),
        "examples": PlanExamples(refused=("Many lines: it prints nothing",), already=(KEPT,)),
    },
}


def result(state: JobState, **changes: Any) -> JobResult:
    values: dict[str, Any] = {
        "exit_status": state,
        "plan": PLAN,
        "verification": verification(),
        "commit": "f6e7d8c9b0" * 4,
        "changes": pull_request().result.changes,
        "turns": 8,
        "url": "https://github.example/ada/sample/pull/12",
    }
    if state in SHOWN_AS_PROGRAM:
        values |= {"verification": None, "commit": "", "changes": (), "url": "", **REPRODUCTIONS[state]}
    return JobResult.model_validate(values | changes)


def view(
    state: JobState, *, of: Job | None = None, where: JobContext | None = None, minutes: float = 6, **changes: Any
) -> StatusView:
    values: dict[str, Any] = {"totals": TOTALS, "turn": 12} | changes
    at = START + timedelta(minutes=minutes)
    return StatusView(of or job("j1"), where or job_context(), state, at, **values)


def text(state: JobState, **changes: Any) -> str:
    return render_status(view(state, **changes))


@pytest.mark.parametrize("state", STATES)
def test_first_line_shows_the_state(state: JobState) -> None:
    made = text(state, result=result(state), reason="Because.")
    first = made.splitlines()[0]
    assert first.startswith("### ")
    assert len({text(other).splitlines()[0] for other in STATES}) == len(STATES)
    assert len(made) < 3_000
    assert "job `j1`" in made


def test_finished_stages_are_ticked() -> None:
    planned = render_plan(PLAN)
    assert "- [ ] **Plan**\n- [ ] Reproduction\n- [ ] Change\n- [ ] Verification\n- [ ] Draft" in text("planning")
    made = text("working", planned=planned)
    assert "- [x] Plan: Half cents are rounded down.\n- [ ] Reproduction\n- [ ] **Change**" in made
    assert "<summary>The plan in 2 steps</summary>\n\n1. Round half up.\n2. Add a test." in made
    made = text("verifying", planned=planned)
    assert "- [x] Change\n- [ ] **Verification**" in made
    made = text("publishing", result=result("pr_opened"))
    assert "- [x] Reproduction\n- [x] Change\n- [x] Verification\n- [ ] **Draft pull request**" in made
    unproved = result("pr_opened", verification=verification(reproduction=None))
    assert "- [ ] Reproduction" in text("publishing", result=unproved)


def test_each_kind_of_job_has_its_own_stages() -> None:
    follow_up = job_context(aim="follow_up", publish_target="same_branch")
    assert "Pull request updated" in text("working", where=follow_up)
    assert "- [ ] **Conflicts resolved**" in text("working", of=job("j1", conflicts=("a.py",)))
    assert "- [ ] Plan" not in text("working", of=job("j1", plan_mode="none"))
    asked = text("working", of=job("j1", aim="ask"))
    assert "- [ ] **Answer**" in asked
    assert "Change" not in asked


def test_comment_shows_time_turns_and_costs() -> None:
    made = text("working", of=job("j1", budget=Budget(usd=5_000_000, steps=100)))
    assert "<sub>6 min · turn 12 of 100 · $0.42 of $5.00 · `scripted/one` · job `j1`</sub>" in made
    assert "<sub>under a minute ·" in text("working", minutes=0.5)
    assert "<sub>2 h 5 min ·" in text("working", minutes=125)
    assert "· 8 turns ·" in text("pr_opened", result=result("pr_opened"))
    assert "$" not in text("queued", totals=Totals())
    assert f"[job j1]({PAGE})" in text("working", job_page=PAGE)


def test_comment_is_not_edited_for_seconds_only() -> None:
    assert text("working", minutes=6.1) == text("working", minutes=6.9)


def test_latest_actions_are_shown_escaped_while_working() -> None:
    recent_actions = (row("command", "bash pytest -q\nmore"), row("verification", "tested: @octocat fixes #1"))
    made = text("working", recent_actions=recent_actions)
    assert "Recent actions: `bash pytest -q` · tested: `@octocat` `fixes #1`" in made
    assert "Recent actions" not in text("pr_opened", recent_actions=recent_actions, result=result("pr_opened"))


def test_plan_can_be_edited_and_read_back() -> None:
    made = text("awaiting_approval", result=JobResult(exit_status="awaiting_approval", plan=PLAN))
    found = read_plan(made)
    assert found is not None
    assert parse_plan_file(found) == PLAN
    assert "`/agent approve` to start with the plan above, including your edits" in made
    edited = made.replace("Add a test.", "Add two tests.").replace("\n", "\r\n")
    found = read_plan(edited)
    assert found is not None
    assert parse_plan_file(found).steps == ("Round half up.", "Add two tests.")


def test_plan_without_its_fence_is_still_read() -> None:
    made = text("awaiting_approval", result=JobResult(exit_status="awaiting_approval", plan=PLAN))
    found = read_plan(made.replace("```yaml\n", "").replace("```\n", ""))
    assert found is not None
    assert parse_plan_file(found) == PLAN


def test_comment_without_a_plan_has_none() -> None:
    assert read_plan("") is None
    assert read_plan(text("working", planned=render_plan(PLAN))) is None
    assert read_plan("<!-- agent-fix:plan -->\n<!-- /agent-fix:plan -->") is None


def test_a_plan_too_long_to_be_edited_can_be_approved_as_it_is() -> None:
    long = PLAN.model_copy(update={"steps": tuple(f"{number} {'x' * 300}" for number in range(30))})
    made = text("awaiting_approval", result=JobResult(exit_status="awaiting_approval", plan=long))
    assert read_plan(made) is None
    assert "`/agent approve` to start ·" in made
    assert len(made) <= MAX_COMMENT


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_hostile_plan_text_round_trips_and_cannot_forge_a_mark(case: str) -> None:
    hostile = f"{case} <!-- /agent-fix:plan --> ``` <!-- agent-fix:plan -->"
    plan = Plan(summary="s", steps=(hostile,))
    made = text("awaiting_approval", result=JobResult(exit_status="awaiting_approval", plan=plan))
    found = read_plan(made)
    assert found is not None
    assert len(parse_plan_file(found).steps) == 1


def test_questions_are_listed_with_the_command_to_answer() -> None:
    plan = Plan(summary="", questions=("Round refunds, too?",))
    made = text("needs_input", result=JobResult(exit_status="needs_input", plan=plan))
    assert made.startswith("### ❓ A question before the work starts\n\n- Round refunds, too?\n")
    assert "`/agent …` to answer" in made
    more = Plan(summary="", questions=("One?", "Two?"))
    made = text("needs_input", result=JobResult(exit_status="needs_input", plan=more))
    assert made.startswith("### ❓ Questions before the work starts\n\n1. One?\n2. Two?\n")
    assert "Tell me." in text("needs_input", reason="Tell me.")


def test_paused_job_shows_the_reason_and_how_to_resume() -> None:
    made = text("paused", reason="The next model call could pass the cap.", waiting_for="money")
    assert "`/agent continue --budget +3` to resume the job" in made
    made = text("paused", reason="No sandbox can be had, whatever the budget.")
    assert "`/agent continue` to resume the job" in made


def test_budget_warning_is_shown_while_working() -> None:
    warned = ("80 % of the budget is spent: $4.00 of $5.00.",)
    assert "80 % of the budget is spent" in text("working", limit_warnings=warned)
    assert "80 % of the budget is spent" not in text("pr_opened", limit_warnings=warned)


@pytest.mark.parametrize("budget", [Budget(usd=1, minutes=9, steps=0), Budget(usd=1, minutes=0, steps=9)])
def test_used_turns_and_minutes_do_not_ask_for_budget(budget: Budget) -> None:
    with pytest.raises(AgentOutcome) as reached:
        check_budget([], budget)
    assert "`/agent continue` to resume the job" in text("paused", reason=str(reached.value))


def test_costs_are_shown_against_the_budget_if_the_price_is_known() -> None:
    assert "· $0.42 of $" in text("working")
    assert "· price unknown ·" in text("working", totals=Totals(calls=9, prompt_tokens=60_000))


def test_final_comment_shows_verdict_and_address() -> None:
    made = text("pr_opened", result=result("pr_opened"))
    assert "\n\nhttps://github.example/ada/sample/pull/12\n\n> [!TIP]\n> **Proved.**" in made
    assert "passing tests 41 → 42" in made
    assert "`/agent …` on the pull request to request changes · `/agent ci` on the pull request to start CI" in made
    folded = "<summary>The plan in 2 steps</summary>\n\nHalf cents are rounded down.\n\n1. Round half up."
    assert folded in made
    made = text("verification_failed", reason="A test fails.", result=result("verification_failed"))
    assert "A test fails." in made
    assert "`/agent retry` to start again" in made


def test_jobs_without_a_model_have_their_own_text() -> None:
    told = JobResult(
        exit_status="pr_updated", summary="CI may start: agent-fix pushed an empty commit.", url="https://x.example"
    )
    made = text("pr_updated", where=job_context(aim="ci", publish_target="same_branch"), result=told)
    assert "\n\nCI may start: agent-fix pushed an empty commit.\n\n" in made
    assert "to start CI" not in made
    assert "- [ ] **Pull request updated**\n" in text("publishing", where=job_context(aim="ci"))


def test_no_change_shows_the_claim_as_unchecked() -> None:
    claimed = JobResult(exit_status="no_change", summary="It is <b>right</b> as it is.", reason="Nothing was changed.")
    made = text("no_change", reason=claimed.reason, result=claimed)
    assert "Nothing was changed.\n\nThe agent says (unchecked):\n\n> It is" in made
    assert "<b>" not in made
    assert "change is kept" not in made


@pytest.mark.parametrize("kept", [KEPT_ON_SERVER, KEPT_IN_RECORD, NOT_KEPT])
@pytest.mark.parametrize("state", ["error", "no_access", "verification_failed"])
def test_unpublished_change_is_shown_with_its_location(state: JobState, kept: str) -> None:
    ended = result(state, diff="d" * 64, compare="https://x.example/compare/main...b?expand=1", branch="agent-fix/b")
    made = text(state, reason="It was refused.", result=ended, kept=kept)
    assert kept.format(job="j1") in made
    assert (
        "on the branch `agent-fix/b`. [Open a pull request for it](https://x.example/compare/main...b?expand=1)" in made
    )


@pytest.mark.parametrize("state", ["stopped", "pr_opened"])
def test_published_change_is_not_reported_as_kept(state: JobState) -> None:
    assert "change is kept" not in text(state, result=result(state, diff="d" * 64))


def test_an_error_has_a_short_id() -> None:
    failed = view("error", reason="Somebody pushed.", result=result("error", hint="The change was saved."))
    made = render_status(failed)
    assert f"Somebody pushed. (error `{error_id(failed)}`)" in made
    assert "The change was saved." in made
    assert len(error_id(failed)) == 6
    assert error_id(failed) != error_id(view("error", reason="Other."))


def test_answer_is_the_comment_body() -> None:
    answered = JobResult(exit_status="answered", summary="It is in `money.py`.\n\n- see total()")
    made = text("answered", of=job("j1", aim="ask"), result=answered)
    assert made.startswith("### 💬 Answer\n\nIt is in `money.py`.\n\n- see `total()`\n")
    assert "/agent" not in made
    made = text("answered", of=job("j1", plan_mode="only"), result=JobResult(exit_status="answered", plan=PLAN))
    assert made.startswith("### 🧭 A plan for your approval\n")
    assert "`/agent approve` to start with the plan above, including your edits" in made
    assert "/agent stop" not in made
    assert "Half cents are rounded down." in (read_plan(made) or "")


def test_notes_on_the_request_are_shown() -> None:
    where = job_context(notes=("3 hidden characters were removed.", "The description was edited since."))
    assert "️ 3 hidden characters were removed. The description was edited since." in text("working", where=where)


def hostile(case: str, state: JobState) -> StatusView:
    plan = Plan(summary=case, steps=(case,) * 3, questions=(case,))
    because, ran = Because(quote=case, source=case), ProgramRun(stdout=case)
    one = JudgedExample(
        behaviour=case, because=because, run="shell", program=case, args=(case,), stdout=case, base=(ran,)
    )
    shown = {"reproduced": PlanExamples(examples=(one,) * 8)}
    examples = shown.get(state, PlanExamples(refused=(case,) * 8, already=(one,)))
    kinds = ("command", "note", "verification")
    return view(
        state,
        of=job("j1", aim="ask" if state == "answered" else "fix", model=case or "m"),
        where=job_context(notes=(case,), login=case),
        reason=case,
        result=result(state, plan=plan, examples=examples, summary=case, hint=case, url=""),
        recent_actions=tuple(row(kind, case) for kind in kinds),
        planned=case,
        diff=f"@@ -1 +1 @@\n+{case}\n",
    )


def assert_no_more_than_ours(made: str, *, tables: bool = False) -> None:
    """No image, no link, no mention, no closing keyword, no command of another bot (S23, S24)."""
    tokens = flat(PARSER.parse(made))
    unwanted = {"image", "link_open", "s_open", *(() if tables else ("table_open",))}
    assert not {token.type for token in tokens} & unwanted
    html = " ".join(token.content for token in tokens if token.type in {"html_block", "html_inline"})
    html = html.replace("<!-- agent-fix:plan -->", "").replace("<!-- /agent-fix:plan -->", "")
    assert set(re.findall(r"<\s*/?\s*([\w!?]+)", html)) <= {"details", "summary", "sub", *(("br",) if tables else ())}
    assert "=" not in html, "no attribute"
    assert sum(token.type == "heading_open" for token in tokens) == 1
    shown = " \n".join(token.content for token in tokens if token.type == "text")
    assert not re.search(r"(?i)(?<!\w)@\w|#\d|\bgh-\d|://|\bwww\.\w|\w@\w+\.\w|\b[0-9a-f]{7,64}\b", shown)
    outside = re.sub(r"(?ms)^(`{3,})(?:text|yaml|diff)\n.*?^\1$", "", made)
    assert not re.search(r"(?m)^[\s>]*(/\w|::)", outside)
    assert {token.info for token in tokens if token.type == "fence"} <= {"text", "yaml", "diff"}


@pytest.mark.parametrize("state", STATES)
def test_untrusted_text_in_the_comment_is_escaped(state: JobState) -> None:
    for case in (*CASES, JOINED):
        assert_no_more_than_ours(render_status(hostile(case, state)), tables=state == "verified")


def test_untrusted_examples_in_a_verdict_are_escaped() -> None:
    for case in (*CASES, JOINED):
        because = Because(quote=case, source=case)
        runs = (ProgramRun(stdout=case, stderr=case, exit_code=1),) * 2
        one = JudgedExample(
            name="1",
            behaviour=case,
            because=because,
            run="python",
            program=case,
            stdout=f"{case}!",
            base=runs,
            change=runs,
        )
        examples = PlanExamples(examples=(one, one.model_copy(update={"unconfirmed": case})), refused=(case,))
        facts = verification(verdict="broken", of_others=True, examples=examples)
        judged = result("verified", summary=case, url="", verification=facts)
        assert_no_more_than_ours(render_status(view("verified", result=judged)), tables=True)


@given(words=st.text(max_size=60), state=st.sampled_from(STATES), times=st.integers(1, 400))
def test_any_text_is_escaped_and_fits(words: str, state: JobState, times: int) -> None:
    made = render_status(hostile(words.encode("utf-8", "replace").decode() * times, state))
    assert len(made) <= (MAX_BODY if state in ATTEMPT_SHOWN else MAX_COMMENT)
    assert made.endswith("</sub>\n"), "nothing was cut off"


@pytest.mark.parametrize("state", STATES)
def test_a_comment_is_never_too_long(state: JobState) -> None:
    for filling in ("&<>", "x", "`", "@a ", "\n- y", "字", "$", "|"):
        made = render_status(hostile(filling * 3_000, state))
        assert len(made) <= (MAX_BODY if state in ATTEMPT_SHOWN else MAX_COMMENT)
        assert made.endswith("</sub>\n"), "nothing was cut off"


def test_workflow_comment_offers_only_working_commands() -> None:
    """Its run hears no words, and the next one begins again."""
    promises: dict[JobState, str] = {"working": "to guide the agent", "paused": "to resume the job"}
    for state, promise in promises.items():
        seen = view(state, result=result(state))
        assert promise in render_status(seen)
        assert promise not in render_status(replace(seen, run=4711))
    assert "`/agent stop` to stop the job" in render_status(replace(view("working"), run=4711))


def test_the_runner_and_every_model_are_shown() -> None:
    made = job("j1", model="openai/code", runner="codex", models=ModelNames(plan="openai/plan", cheap="openai/code"))
    shown = text("working", of=made)
    assert "`openai/code (plan: openai/plan)` · runner `codex`" in shown
    assert "cheap" not in shown
    assert "runner" not in text("working"), "our own needs no mention"


DIFF = "diff --git a/money.py b/money.py\n--- a/money.py\n+++ b/money.py\n@@ -1 +1 @@\n-half = 0.5\n+half = 0.25\n"


@pytest.mark.parametrize("state", sorted(ATTEMPT_SHOWN))
def test_change_that_was_not_published_is_shown_folded(state: JobState) -> None:
    made = text(state, result=result(state, diff="d" * 64), diff=DIFF)
    folded = "<summary>Unpublished change from this attempt</summary>\n\n```diff\ndiff --git a/money.py"
    assert folded in made
    assert "-half = 0.5\n+half = 0.25\n```\n\n</details>" in made
    assert KEPT_ON_SERVER.format(job="j1") in made
    assert "not published</summary>" not in text("pr_opened", result=result("pr_opened", diff="d" * 64), diff=DIFF)


def test_long_diff_is_cut_at_a_line_and_says_how_many_are_left_out() -> None:
    diff = "".join(f"+line {number} {'x' * 50}\n" for number in range(3_000))
    made = text("limit_reached", result=result("limit_reached"), diff=diff)
    assert MAX_BODY - 1_000 - MAX_COMMENT < len(made) <= MAX_BODY
    shown = len(re.findall(r"(?m)^\+line", made))
    assert f"{3_000 - shown:,} more lines not shown." in made
    assert made.endswith("</sub>\n")


@pytest.mark.parametrize("hidden", ["", "\u200b", "\x1b[0m", "\x00", "x\b"])
def test_diff_with_a_secret_is_left_out(hidden: str) -> None:
    """Also if characters that nobody would see stand in the middle of it."""
    token = "ghp_" + hidden + "a1B2c3D4e5F6" * 3
    shown = attempt_diff(f"+a = 1\n+token = {token!r}\n+b = 2\n", 5_000)
    assert "ghp_" not in shown
    assert "a1B2" not in shown
    assert "looks like a secret" in shown


def test_no_line_of_a_private_key_is_shown() -> None:
    body = "".join(f"+{'aB3dE5' * 10}{number}\n" for number in range(26))
    shown = attempt_diff(f"+-----BEGIN RSA PRIVATE KEY-----\n{body}+-----END RSA PRIVATE KEY-----\n", 5_000)
    assert "aB3dE5" not in shown


def test_long_runs_of_backticks_leave_space_for_the_fence() -> None:
    diff = f"+{'`' * 990}\n" + "".join(f"+line {number} {'x' * 50}\n" for number in range(3_000))
    assert len(attempt_diff(diff, 52_000)) <= 52_000
    assert len(text("limit_reached", result=result("limit_reached"), diff=diff)) <= MAX_BODY


def test_a_diff_without_space_or_lines_is_not_shown() -> None:
    assert attempt_diff("", 5_000) == attempt_diff("\n", 5_000) == attempt_diff(DIFF, 100) == ""
