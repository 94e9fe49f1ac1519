"""Facts of pull requests for tests: one that went well, to be varied."""

from datetime import UTC, datetime
from typing import Any

from app.core.job import Budget, Job, JobResult
from app.core.model_usage import Totals
from app.core.patch import FileStat
from app.core.plan import Plan
from app.core.task import Issue, Person, Task
from app.core.verification import (
    Execution,
    GateResult,
    Reproduction,
    SuiteComparison,
    SuiteResult,
    TestCount,
    Verification,
)
from app.publish.pull_request_text import PullRequestContent

BASE, HEAD = "a1b2c3d4e5" * 4, "f6e7d8c9b0" * 4
COMMAND = "python -m unittest tests.test_rounding -v"
TRACE = """FAIL: test_half_cents_go_up (tests.test_rounding.Rounding)
Traceback (most recent call last):
  File "/workspace/tests/test_rounding.py", line 12, in test_half_cents_go_up
    self.assertEqual(total([Line("0.125", 1)]), Decimal("0.13"))
AssertionError: Decimal('0.12') != Decimal('0.13')
"""


def suite(**changes: Any) -> SuiteComparison:
    base = SuiteResult(
        execution=Execution(command="python -m unittest", exit_code=1, seconds=1.24, excerpt="FAILED (failures=1)"),
        count=TestCount(passed=41, failed=1, skipped=2),
        failing=("tests.test_dates.Leap.test_century",),
    )
    head = SuiteResult(
        execution=Execution(command="python -m unittest", exit_code=1, seconds=1.31, excerpt="FAILED (failures=1)"),
        count=TestCount(passed=42, failed=1, skipped=2),
        failing=("tests.test_dates.Leap.test_century",),
    )
    facts = {"command": "python -m unittest", "base": base, "head": head}
    return SuiteComparison.model_validate(
        facts | {"fixed": ("tests.test_rounding.Rounding.test_half_cents_go_up",)} | changes
    )


def reproduction(**changes: Any) -> Reproduction:
    facts = {
        "command": COMMAND,
        "base": Execution(command=COMMAND, exit_code=1, seconds=0.41, excerpt=TRACE),
        "head": Execution(command=COMMAND, exit_code=0, seconds=0.39, excerpt="Ran 1 test in 0.001s\n\nOK"),
        "on_base": "red",
        "on_head": "green",
    }
    return Reproduction.model_validate(facts | changes)


GATES = (
    GateResult(name="syntax", outcome="passed"),
    GateResult(name="secrets", outcome="passed"),
    GateResult(name="dependencies", outcome="warned", details=("pyproject.toml: needs review",)),
    GateResult(name="security scan", outcome="not_run", details=("bandit did not finish within 60 s",)),
)


def verification(**changes: Any) -> Verification:
    facts = {
        "verdict": "proved",
        "reasons": (
            "The reproduction fails on the base and passes on the head.",
            "The suite ran on base and head and has no new failures (42 passed).",
        ),
        "reproduction": reproduction(),
        "suite": suite(),
        "gates": GATES,
        "sandbox": "bubblewrap",
    }
    return Verification.model_validate(facts | changes)


def task(**changes: Any) -> Task:
    issue = {"title": "Invoice totals are a cent too low", "body": "Totals like 0.125 …", "number": 12}
    return Task(
        repository="sample",
        issue=Issue.model_validate(issue | changes),
        base=BASE,
        base_ref="refs/heads/main",
        slug="invoice-totals-are-a-cent-too-low",
        requester=Person(name="Ada Lovelace", email="ada@users.noreply.example"),
    )


def pull_request(**changes: Any) -> PullRequestContent:
    """`changes` are of the job, its result or the result's verification, by the field's name."""
    job = {
        "id": "01JB2Q8Z",
        "task": task(),
        "branch": "agent-fix/issue-12-invoice-totals-are-a-cent-too-low",
        "budget": Budget(),
        "model": "anthropic/some-model",
        "created_at": datetime(2026, 1, 5, tzinfo=UTC),
    }
    result = {
        "exit_status": "pr_opened",
        "branch": job["branch"],
        "commit": HEAD,
        "plan": Plan(
            summary="Totals are rounded half to even; customers expect half up.",
            candidate_files=("invoices/money.py", "tests/test_rounding.py"),
            steps=("Write a failing test for half cents.", "Quantise with ROUND_HALF_UP.", "Run the suite."),
        ),
        "summary": "Half cents were rounded to even by `Decimal.quantize`'s default.\n\n"
        "- invoices/money.py: pass ROUND_HALF_UP in `total()`.\n- A test for 0.125 and 0.135.",
        "changes": (
            FileStat(path="invoices/money.py", status="modified", mode="100644", old_mode="100644", added=3, deleted=1),
            FileStat(path="pyproject.toml", status="modified", mode="100644", old_mode="100644", added=1, deleted=0),
            FileStat(
                path="tests/test_rounding.py", status="added", mode="100644", old_mode="000000", added=20, deleted=0
            ),
        ),
        "usage": Totals(calls=9, prompt_tokens=61_234, cached_tokens=52_000, completion_tokens=3_210, cost=84_200),
        "turns": 8,
        "seconds": 93.4,
        "notes": ("3 uncommitted changes in the work tree are neither used nor changed.",),
    }
    found = changes.pop("verification", verification())
    of_job = {name: value for name, value in changes.items() if name in {"id", "task", "model", "runner"}}
    of_result = {name: value for name, value in changes.items() if name not in of_job}
    return PullRequestContent(Job.model_validate(job | of_job), JobResult.model_validate(result | of_result), found)
