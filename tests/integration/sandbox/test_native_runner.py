"""Runners are found by name; the native one works in a real sandbox and leaves a trajectory."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.agent.base import Assignment, ReviewResult, Runner, RunnerContext, Submission
from app.agent.external.recipe import find_recipe
from app.agent.loop import NativeRunner
from app.core.errors import AgentFixError, ExitCode
from app.core.job import Budget
from app.sandbox.base import Sandbox, SandboxSpec
from app.sandbox.bubblewrap.provider import BubblewrapProvider
from app.sandbox.changes import baseline, export
from tests.support.agent_harness import FIX, SUBMIT, UnbudgetedModel, act, bash
from tests.support.memory_journal import Died, MemoryBlobs, MemoryJournal
from tests.support.memory_tree import MemoryTree
from tests.support.recorded_progress import ListProgress
from tests.support.scripted_model import ScriptedModel

TREE = MemoryTree({"app.py": b"def add(a, b):\n    return a - b\n", "README": b"adds\n"})


def test_the_native_runner_is_found() -> None:
    assert find_recipe("native") is None


def test_an_unknown_runner_is_refused_with_the_list() -> None:
    with pytest.raises(AgentFixError) as error:
        find_recipe("robot")
    assert error.value.code is ExitCode.CONFIG
    assert "'robot'" in error.value.message
    assert "native" in error.value.hint


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    def fill(directory: Path) -> None:
        for path, content in TREE.files.items():
            (directory / path).write_bytes(content)

    provider = BubblewrapProvider(tmp_path / "sandboxes", caches=tmp_path / "caches", environment=dict(os.environ))
    opened = await provider.open(SandboxSpec(key="work", fill=fill))
    yield opened
    await opened.destroy()


def runner_in(sandbox: Sandbox, model: ScriptedModel, journal: MemoryJournal, blobs: MemoryBlobs) -> NativeRunner:
    return NativeRunner(
        RunnerContext(
            budgeted_model=UnbudgetedModel(model),
            sandbox=sandbox,
            baseline=baseline(TREE),
            journal=journal,
            blobs=blobs,
            progress=ListProgress(),
            budget=Budget(),
        )
    )


async def accept(_: Submission) -> ReviewResult:
    return ReviewResult(accepted=True)


async def test_the_native_agent_fixes_and_reports_every_step(sandbox: Sandbox) -> None:
    native = runner_in(sandbox, ScriptedModel([act(bash("ls")), FIX, SUBMIT]), MemoryJournal(), MemoryBlobs())
    runner: Runner = native
    ending = await runner.work(Assignment(brief="Fix add."), accept)
    assert ending.exit_status == "submitted"
    patch = await export(sandbox, baseline(TREE))
    assert [(change.path, change.content) for change in patch.changes] == [
        ("app.py", b"def add(a, b):\n    return a + b\n")
    ]
    steps = [json.loads(line) for line in native.trajectory()]
    assert [step["step"] for step in steps] == [1, 2, 3]
    assert [step["actions"][0]["tool"] for step in steps] == ["bash", "edit", "submit"]
    assert steps[0]["actions"][0]["arguments"] == {"command": "ls"}
    assert "app.py" in steps[0]["actions"][0]["observation"]
    assert steps[1]["files"] == ["app.py"]
    assert steps[2]["submission"] == "accepted"
    assert steps[0]["usage"]["cost"] == pytest.approx(0.001)


@pytest.mark.parametrize("step", ["turn.1.act", "turn.2.answer", "turn.2.act", "turn.3.act"])
async def test_a_resumed_job_ends_with_the_same_tree_and_trajectory(step: str, sandbox: Sandbox) -> None:
    append = act(bash("echo more >> README; echo '*.log' > .gitignore; mkdir d; echo x > d/new.txt; rm app.py"))
    restore = act(("write", {"path": "app.py", "content": "def add(a, b):\n    return a + b\n"}))
    model = ScriptedModel([append, restore, SUBMIT])
    journal, blobs = MemoryJournal(die_at=step, moment="before" if step.endswith("answer") else "during"), MemoryBlobs()
    with pytest.raises(Died):
        await runner_in(sandbox, model, journal, blobs).work(Assignment(brief="b"), accept)
    native = runner_in(sandbox, model, journal.resumed(), blobs)
    assert (await native.work(Assignment(brief="b"), accept)).exit_status == "submitted"
    assert model.calls == 3
    patch = await export(sandbox, baseline(TREE))
    assert {change.path: change.content for change in patch.changes} == {
        ".gitignore": b"*.log\n",
        "README": b"adds\nmore\n",
        "app.py": b"def add(a, b):\n    return a + b\n",
        "d/new.txt": b"x\n",
    }
    assert len(list(native.trajectory())) == 3
