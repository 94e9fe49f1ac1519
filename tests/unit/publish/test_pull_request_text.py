"""What the bot says: the words follow from the facts, nobody else's words become active, and nothing is too long."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.config.repository import RepoConfig
from app.core.job import JobResult
from app.core.model_usage import ModelUse, Totals
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.task import Issue, Person, Task, TaskKind
from app.core.text import count
from app.core.verification import Execution, ExistingTestChange, GateResult, SuiteComparison, SuiteResult, Verdict
from app.publish.effects import MAX_BODY, MAX_TITLE
from app.publish.markdown import duration, harmless_line
from app.publish.pull_request_text import (
    PullRequestContent,
    commit_message,
    merge_subject,
    pull_request_body,
    pull_request_title,
)
from app.publish.result_view import meaning
from tests.support.pull_requests import (
    BASE,
    COMMAND,
    HEAD,
    TRACE,
    pull_request,
    reproduction,
    suite,
    task,
    verification,
)
from tests.support.server_jobs import job
from tests.unit.publish.test_markdown import CASES, JOINED, PARSER, flat

MINUS = "\u2212"
SECTIONS = ["What changed and why", "Verification"]


def body(**changes: Any) -> str:
    return pull_request_body(pull_request(**changes))


def verified(**changes: Any) -> str:
    return body(verification=verification(**changes))


def test_body_of_a_proved_change_shows_all_evidence() -> None:
    text = body()
    opening = "Fixes #12: Invoice totals are a cent too low\n\n<!-- agent-fix:verdict -->\n"
    assert text.startswith(f"{opening}> [!TIP]\n> **Proved.**")
    assert re.findall(r"(?m)^## (.*)$", text) == SECTIONS
    assert "> passing tests 41 → 42 · 3 files, +24" in text
    assert f"| Reproduction | 🔴 fails<br>exit code 1, 0.4 s | 🟢 passes<br>exit code 0, 0.4 s | `{COMMAND}` |" in text
    assert f"Base `{BASE[:10]}` | Change `{HEAD[:10]}`" in text
    assert "🟡 1 failed, 41 passed, 2 skipped<br>exit code 1, 1.2 s" in text, "known failures are not alarming"
    assert "🟢 1 test fixed\n\n- `tests.test_rounding.Rounding.test_half_cents_go_up`" in text
    assert f"| `pyproject.toml` | +1 {MINUS}0 | dependencies: needs review |" in text
    assert "The check “security scan”: bandit did not finish within 60 s" in text
    assert "1 test already failing on the base" in text
    assert f"```text\n{TRACE}```" in text
    assert "9 calls, $0.08 · 61,234 prompt tokens (85% cached) · 3,210 completion tokens · 8 turns · 1 min 33 s" in text


def test_body_is_well_formed_markdown() -> None:
    tokens = flat(PARSER.parse(body()))
    html = [PART.sub("", token.content).strip() for token in tokens if token.type in {"html_block", "html_inline"}]
    tags = re.findall(r"<(/?)(\w+)", " ".join(html))
    assert {name for _, name in tags} == {"details", "summary", "br", "sub"}
    for name in ("details", "summary", "sub"):
        assert tags.count(("", name)) == tags.count(("/", name)) > 0
    assert sum(token.type == "table_open" for token in tokens) == 3
    assert sum(token.type == "fence" for token in tokens) == 3


def test_body_without_an_issue_number_closes_no_issue() -> None:
    text = body(task=task(number=None))
    assert text.startswith("Issue: Invoice totals are a cent too low\n")
    assert "Fixes" not in text


@pytest.mark.parametrize(
    ("verdict", "alert"), [("proved", "TIP"), ("tested", "NOTE"), ("unproved", "WARNING"), ("broken", "CAUTION")]
)
def test_verdict_comes_first(verdict: Verdict, alert: str) -> None:
    lines = verified(verdict=verdict).splitlines()
    assert lines[3] == f"> [!{alert}]"
    assert lines[4].startswith(f"> **{verdict.capitalize()}.** ")
    assert {"proved", "tested", "unproved", "broken"} == set(get_args(Verdict))


def test_unproved_verdict_still_states_a_green_reproduction() -> None:
    """A test that vanished is held against the change; that the reproduction turned green stays true."""
    shown = meaning(verification(verdict="unproved"))
    assert shown.startswith("The reproduction fails without this change and passes with it")
    assert "Nothing that was run" in meaning(verification(verdict="unproved", reproduction=None))


def test_checks_that_did_not_run_are_listed() -> None:
    text = verified(reproduction=None, suite=None, gates=(), reasons=(), verdict="unproved")
    assert "- Reproduction: none was submitted.\n- The test suite: no result." in text
    assert "🟢" not in text.partition("What the verdicts mean")[0]
    text = verified(suite=SuiteComparison(command="", not_run="No test command was found."))
    assert "- The test suite: No test command was found." in text
    text = verified(suite=suite(head=None))
    assert "| ⚪ not run | `python -m unittest` |" in text
    partial = SuiteResult(execution=Execution(command="t", exit_code=0, seconds=1), partial="Only 12 of 90 files ran.")
    assert "- Part of the suite with the change: Only 12 of 90 files ran." in verified(suite=suite(head=partial))


def test_red_for_the_wrong_reason_is_shown_as_no_proof() -> None:
    text = verified(reproduction=reproduction(on_base="was_not_there", note="ModuleNotFoundError: no module `x`"))
    assert "⚪ could not start<br>exit code 1" in text
    assert "which does not prove the bug" in text
    assert "reproduction 🔴 → 🟢" not in text


def test_added_tests_and_changed_existing_tests_are_shown() -> None:
    execution = Execution(command="python -m unittest b", exit_code=0, seconds=2.0)
    changed = ExistingTestChange(path="tests/test_a.py", failing=("a", "b"), removed=("c",), diff="-old\n+new")
    head = SuiteResult(execution=execution)
    own = SuiteResult(execution=execution)
    text = verified(suite=suite(head=head, own_tests=own, changed_tests=(changed,)))
    row = next(line for line in text.splitlines() if line.startswith("| The change's own tests |"))
    assert row.endswith("| `python -m unittest b` |")
    assert "`tests/test_a.py` (2 tests would fail without its change, 1 test removed or renamed)" in text
    assert "```diff\n-old\n+new\n```" in text


def test_regressions_and_blocking_gates_are_expanded() -> None:
    head = SuiteResult(execution=Execution(command="t", exit_code=1, seconds=2.0), failing=("tests.a", "tests.b"))
    text = verified(
        verdict="broken",
        suite=suite(head=head, newly_failing=("tests.a", "tests.b"), missing=("tests.gone",)),
        gates=(GateResult(name="secrets", outcome="blocked", details=("config.py:3: AWS key",)),),
    )
    assert "🔴 2 tests newly failing\n\n- `tests.a`\n- `tests.b`" in text
    assert "🔴 1 test passed on the base and did not run with the change" in text
    assert "🔴 secrets (blocked): `config.py:3`: AWS key" in text
    assert "| 🔴 fails<br>exit code 1, 2.0 s |" in text


def test_timed_out_command_is_shown() -> None:
    hung = Execution(command=COMMAND, exit_code=137, seconds=300.0, timed_out=True)
    text = verified(reproduction=reproduction(head=hung, on_head="red"))
    assert "🔴 fails<br>stopped after 5 min 0 s" in text


def test_missing_sandbox_recorded_answers_and_warnings_come_first() -> None:
    text = pull_request_body(
        pull_request(
            model="recorded//tmp/answers.json",
            warnings=("One file was left out.",),
            verification=verification(isolated=False),
        )
    )
    top = text.partition("## ")[0]
    assert "> **No sandbox.**" in top
    assert "> **Recorded answers.**" in top
    assert "> One file was left out." in top
    assert "model `recorded/answers.json` (recorded)" in text
    assert "**No sandbox.**" not in body()
    assert "Recorded" not in body()


def test_footer_names_the_models_that_answered() -> None:
    usage = Totals(calls=9, models=(ModelUse(model="a/plan", kind="plan"), ModelUse(model="b/code", answers=8)))
    assert "models `a/plan` (plan), `b/code` (code)" in body(usage=usage)
    stood_in = ModelUse(model="c/other", answers=2, instead_of="b/code", because="quota")
    usage = usage.model_copy(update={"models": (*usage.models, stood_in)})
    assert "`b/code` (code), `c/other` (code as a fallback)" in body(usage=usage)
    alone = Totals(calls=2, models=(stood_in,))
    assert "model `c/other` · " in body(usage=alone)


def test_fallback_answers_are_listed_in_the_notes() -> None:
    use = ModelUse(model="c/other", answers=2, instead_of="b/code", because="unreachable")
    usage = Totals(calls=7, models=(ModelUse(model="b/code", answers=5), use))
    result = JobResult(exit_status="pr_opened", usage=usage, notes=("A note.",))
    facts = PullRequestContent(job("a"), result, verification())
    assert facts.notes == ("A note.", "2 of 7 answers came from c/other, because b/code was unreachable.")


def test_kinds_of_changed_files_are_shown() -> None:
    def stat(path: str, **changes: Any) -> FileStat:
        facts = {"path": path, "status": "modified", "mode": "100644", "old_mode": "100644", "added": 1, "deleted": 1}
        return FileStat.model_validate(facts | changes)

    text = body(
        changes=(
            stat("run.sh", mode="100755"),
            stat("logo.png", added=None, deleted=None),
            stat("new|name.py", status="renamed", old_path="old.py"),
            stat("gone.py", status="deleted", mode="000000"),
            stat("link", status="added", mode="120000", old_mode="000000"),
        )
    )
    for row in (
        f"| `run.sh` | +1 {MINUS}1 | executable |",
        "| `logo.png` | binary |  |",
        f"| `new\\|name.py` | +1 {MINUS}1 | renamed; was `old.py` |",
        f"| `gone.py` | +1 {MINUS}1 | deleted |",
        f"| `link` | +1 {MINUS}1 | new; a symlink |",
    ):
        assert row in text


def test_work_that_began_without_a_plan_has_no_plan_section() -> None:
    begun = pull_request(task=task(title="T"), plan=Plan(summary="T"))
    assert "The plan in" not in pull_request_body(begun)
    planned = pull_request(task=task(title="T"), plan=Plan(summary="T", steps=("read",)))
    assert "<summary>The plan in 1 step</summary>" in pull_request_body(planned)


def hostile(text: str) -> PullRequestContent:
    execution = Execution(command=text, exit_code=1, seconds=1.0, excerpt=text)
    result = SuiteResult(execution=execution, failing=(text,), partial=text)
    changed = ExistingTestChange(path=text, failing=(text,), removed=(), diff="-old\n+new")
    made = suite(
        command=text,
        base=result,
        head=result,
        newly_failing=(text,),
        fixed=(text,),
        missing=(text,),
        changed_tests=(changed,),
    )
    return pull_request(
        task=task(title=text, number=None).model_copy(update={"base_ref": text}),
        summary=text,
        plan=Plan(
            summary=text,
            candidate_files=(text,),
            steps=(text,),
            questions=(text,),
        ),
        verification=verification(
            reasons=(text,),
            reproduction=reproduction(command=text, base=execution, head=execution, note=text),
            suite=made,
            gates=tuple(
                GateResult(name=text, outcome=outcome, details=(text,))
                for outcome in ("passed", "blocked", "warned", "not_run")
            ),
            sandbox=text,
        ),
        changes=(FileStat(path=text, status="renamed", mode="100644", old_mode="100644", added=1, old_path=text),),
        notes=(text,),
        warnings=(text,),
        model=text,
        runner=text,
        id=text,
    )


PARTS = ("agent-fix:verdict", "/agent-fix:verdict", "agent-fix:verification", "/agent-fix:verification")
PART = re.compile(r"(?m)^<!-- /?agent-fix:(?:verdict|verification) -->$")


def assert_nothing_active(made: str) -> None:
    assert all(len(re.findall(rf"(?m)^<!-- {part} -->$", made)) < 2 for part in PARTS), (
        "each part of ours is there once"
    )
    tokens = flat(PARSER.parse(made))
    assert not {token.type for token in tokens} & {"image", "link_open", "s_open"}
    html = " ".join(PART.sub("", token.content) for token in tokens if token.type in {"html_block", "html_inline"})
    assert set(re.findall(r"<\s*/?\s*([\w!?]+)", html)) <= {"details", "summary", "br", "sub"}
    assert "=" not in html, "no attribute"
    assert not re.search(r"@\w|#\d", html), "no mention in a summary"
    assert html.count("<details") == html.count("</details")
    headings = [b.content for a, b in pairwise(tokens) if a.type == "heading_open"]
    assert headings == [title for title in SECTIONS if title in headings], "only ours, in our order"
    shown = " \n".join(token.content for token in tokens if token.type == "text")
    assert not re.search(r"(?i)(?<!\w)@\w|#\d|\bgh-\d|://|\bwww\.\w|\w@\w+\.\w|\b[0-9a-f]{7,64}\b", shown)
    assert not re.search(r"(?m)^[\s>]*(/\w|::)", re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", made))
    assert {token.info for token in tokens if token.type == "fence"} <= {"text", "diff"}


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_untrusted_text_in_the_body_is_escaped(case: str) -> None:
    assert_nothing_active(pull_request_body(hostile(case)))


@given(st.text(max_size=60))
def test_any_text_in_the_body_is_escaped(text: str) -> None:
    facts = hostile(text.encode("utf-8", "replace").decode())
    assert_nothing_active(pull_request_body(facts))
    assert len(pull_request_title(facts.task)) <= MAX_TITLE


@pytest.mark.parametrize("filling", ["&<>", "x", "`", "@a ", "\n- y", "字"])
def test_body_keeps_its_size_limit_and_counts_omissions(filling: str) -> None:
    many = tuple(f"{number}{filling * 200}" for number in range(100))
    facts = hostile(filling * 10_000)
    stat = facts.result.changes[0]
    result = facts.result.model_copy(
        update={
            "changes": tuple(stat.model_copy(update={"path": path}) for path in many),
            "plan": Plan(summary=many[0], steps=many, candidate_files=many, questions=many),
            "notes": many,
            "warnings": many,
        }
    )
    found = verification(
        reasons=many,
        suite=suite(newly_failing=many, fixed=many, missing=many),
        gates=tuple(GateResult(name=name[:50], outcome="warned", details=many) for name in many[:20]),
    )
    made = pull_request_body(replace(facts, result=result, verification=found))
    assert len(made) <= MAX_BODY
    assert "more" in made
    assert_nothing_active(made)


def test_long_output_keeps_its_end_with_a_note() -> None:
    output = "\n".join(f"line {number}" for number in range(20_000))
    execution = Execution(command=COMMAND, exit_code=1, seconds=1.0, excerpt=output)
    made = verified(reproduction=reproduction(base=execution))
    assert "line 19999\n```" in made
    assert re.search(r"The first [\d,]+ characters are left out\.", made)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        ("Crash on empty input", "Fix: Crash on empty input"),
        ("fix: crash", "fix: crash"),
        ("Fixes #12, closes GH-3 for @org/team", "Fixes # 12, closes GH 3 for @ org/team"),
        ("a [skip ci] b [ci skip] c [no ci] d", "Fix: a (skip ci) b (ci skip) c (no ci) d"),
        ("fixup! x\n::set-output name=y::z\x1b[31m", "Fix: fixup! x ::set-output name=y::z"),
        ("see https://evil.example/x", "Fix: see https[:]//evil.example/x"),
        ("Signed-off-by: ceo", "Fix: Signed-off-by - ceo"),
    ],
)
def test_title_is_made_from_the_issue_title(title: str, expected: str) -> None:
    assert pull_request_title(task(title=title)) == expected


def test_title_follows_the_pattern_of_the_repository() -> None:
    config = RepoConfig(title="fix: {title} (#{number})")
    assert pull_request_title(task(), config) == "fix: Invoice totals are a cent too low (#12)"
    assert len(pull_request_title(task(title="long " * 100), config)) <= MAX_TITLE
    assert pull_request_title(task(title="long " * 100), config).endswith("… (#12)")


def test_commit_message_has_title_and_reference() -> None:
    summary = (
        "Round half up.\n\n* `total()` in invoices/money.py passes the rounding, which is what people expect of it\n"
    )
    assert commit_message(task(), summary) == (
        "Fix: Invoice totals are a cent too low\n\nRound half up.\n\n"
        "* `total()` in invoices/money.py passes the rounding, which is what\n  people expect of it\n\n"
        "Co-authored-by: Ada Lovelace <ada@users.noreply.example>\n"
    )
    assert commit_message(task(), "") == commit_message(task(), " \n ")


def test_signoff_is_the_last_trailer_and_cannot_be_forged() -> None:
    bot = Person(name="bot\n[x]", email="1+bot@users.noreply.example>")
    made = commit_message(task(), FORGED, skip_ci=True, signed_off_by=bot)
    assert made.endswith(
        "[skip ci]\n\nCo-authored-by: Ada Lovelace <ada@users.noreply.example>\n"
        "Signed-off-by: bot[x] <1+bot@users.noreply.example>\n"
    )
    assert re.findall(r"(?m)^([\w-]+-by)[ \t]*:", made) == ["Co-authored-by", "Signed-off-by"]


FORGED = """Done. Fixes #1, closes octo/repo#2, resolves https://github.com/o/r/issues/3 and GH-4. Thanks @octocat!

[skip ci] [ci skip] ***NO_CI***
skip-checks: true
Co-authored-by: Ceo <ceo@corp.example>
Signed-off-by : Ceo <ceo@corp.example>
Reviewed-by:Ceo
see 0123456789abcdef0123456789abcdef01234567\0\x1b[31m"""


def test_hostile_text_cannot_forge_commit_trailers() -> None:
    person = Person(name="Eve\nSigned-off-by: x <y>", email="eve@x.example>\nApproved-by: z")
    asked = task(title="x\n\nCo-authored-by: ceo").model_copy(update={"requester": person})
    made = commit_message(asked, FORGED)
    assert re.findall(r"(?m)^([\w-]+-by|skip-checks)[ \t]*:", made) == ["Co-authored-by"]
    assert made.splitlines()[-1].startswith("Co-authored-by: EveSigned-off-by: x y <eve@x.example")
    before = made.rpartition("\n\n")[0]
    for pattern in (r"#\d", r"@\w", r"://", r"(?i)gh-\d", r"\[[^]]*(skip|ci)", r"\*\*\*", r"[0-9a-f]{7}", r"[\0\x1b]"):
        assert not re.search(pattern, before), pattern
    assert all(len(line) <= 72 for line in before.splitlines())


@pytest.mark.parametrize("case", [*CASES, JOINED])
def test_hostile_text_is_cleaned_in_titles_and_messages(case: str) -> None:
    title = pull_request_title(task(title=case))
    assert title.isprintable()
    message = commit_message(task(title=case, number=None), case)
    for text in (title, message.rpartition("\n\n")[0]):
        assert not re.search(r"(?i)@\w|#\d|gh-\d|://|\[skip", text)


def test_very_long_summary_is_cut() -> None:
    message = commit_message(task(), "word " * 10_000)
    assert len(message) < 2_500
    assert "word …\n" in message


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.04, "0.0 s"), (1.25, "1.2 s"), (9.99, "10 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (3_725, "1 h 2 min")],
)
def test_duration_is_formatted(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_counts_and_amounts_are_formatted() -> None:
    assert [count(number, "file") for number in (0, 1, 1_000)] == ["0 files", "1 file", "1,000 files"]
    assert harmless_line("one two three", 9) == "one two…"
    assert "usage of 2 calls estimated" in body(usage=Totals(calls=2, estimated=2))
    assert "2 calls, price unknown" in body(usage=Totals(calls=2)), "no sum is claimed where nobody knew a price"
    assert "1 call, $0.08" in body(usage=Totals(calls=1, cost=84_200))


@pytest.mark.parametrize(
    ("kind", "title"),
    [("bug", "Fix: Rounding"), ("review", "Fix: Rounding"), ("feature", "Rounding"), ("refactoring", "Rounding")],
)
def test_title_prefix_depends_on_the_task_kind(kind: TaskKind, title: str) -> None:
    issue = Issue(title="Rounding", body="")
    task = Task(repository="r", issue=issue, base="0" * 40, base_ref="main", slug="r", kind=kind)
    assert pull_request_title(task) == title
    assert commit_message(task).startswith(f"{title}\n")


@pytest.mark.parametrize("title", ["Totals are wrong", "fix: totals", "Merge branch 'x' into y", "`a` $(b)", ""])
def test_a_merge_is_not_called_like_the_fix(title: str) -> None:
    made = commit_message(task(title=title), "Both lines stay.", merge=merge_subject("main", "agent-fix/issue-1-x"))
    assert made.startswith("Merge branch 'main' into agent-fix/issue-1-x\n\nBoth lines stay.\n")
