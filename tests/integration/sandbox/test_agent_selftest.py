"""`runners check`: an agent that works passes, a broken one is reported with the step it reached; and its model."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app.agent.external.exchange import CallBudget
from app.agent.external.gateway import Gateway
from app.agent.external.recipe import AgentRecipe, recipes
from app.agent.external.selftest import ScriptedModel, SelftestResult
from app.config.settings import Settings, settings_from
from app.core.errors import ExitCode
from app.llm.base import Usage, WireProtocol
from app.llm.ledger import MemoryLedger
from app.pipeline.wiring.external_agent import selftest_runner
from tests.support.cli_job import PROGRAM as COMMAND
from tests.support.cli_job import TIMEOUT
from tests.support.shell_agent import PROGRAM, VERSION, remembering, settle

TOOLS: dict[WireProtocol, list[dict[str, Any]]] = {
    "chat": [
        {"type": "function", "function": {"name": "edit", "parameters": {"properties": {"path": {}, "command": {}}}}},
        {"type": "function", "function": {"name": "run", "parameters": {"properties": {"command": {}}}}},
        {
            "type": "function",
            "function": {
                "name": "bash",
                "parameters": {"properties": {"command": {}, "why": {}}, "required": ["command", "why"]},
            },
        },
    ],
    "responses": [
        {
            "type": "namespace",
            "name": "n",
            "tools": [
                {"type": "function", "name": "shell", "parameters": {"properties": {"cmd": {"type": "array"}}}},
                {"type": "custom", "name": "patch", "format": {}},
                {"type": "function", "name": "look", "parameters": {}},
            ],
        }
    ],
    "messages": [
        {"name": "Bash", "input_schema": {"properties": {"command": {}}}},
        {"name": "Other", "input_schema": {}},
    ],
}
CALLED: dict[WireProtocol, tuple[str, dict[str, Any]]] = {
    "chat": ("bash", {"command": "ls", "why": "work"}),
    "responses": ("shell", {"cmd": ["bash", "-lc", "ls"]}),
    "messages": ("Bash", {"command": "ls"}),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_its_model_is_understood_in_every_protocol(wire: WireProtocol, *, stream: bool) -> None:
    """By the same reading that books and records what real models say."""
    prompter = ScriptedModel(["ls"])
    account = CallBudget(MemoryLedger(0), prompter.info)
    gateway = Gateway(prompter, account, "t", frozenset({"m"}), clock=lambda: 0.0)
    body: dict[str, Any] = {"model": "m", "stream": stream, "tools": TOOLS[wire]}
    for _ in range(2):
        answer = await gateway.answer(wire, body)
        if not isinstance(answer, dict):
            assert [piece async for piece in answer]
    called, done = gateway.recorder.exchanges
    assert [(call.name, json.loads(call.arguments)) for call in called.calls] == [CALLED[wire]]
    assert called.text == "I go on."
    assert (done.text, done.calls) == ("Done.", ())
    assert called.usage == done.usage == Usage(prompt_tokens=100, completion_tokens=10)


def test_the_scripted_model_ends_as_each_agent_expects() -> None:
    """By a tool of that name; where there is only a shell, by a command; with no shell there are only words."""
    shell = TOOLS["chat"][1]
    finish = {"type": "function", "function": {"name": "finish", "parameters": {"properties": {"message": {}}}}}
    said = [ScriptedModel([])._next({"tools": tools}) for tools in ([shell, finish], [shell], [], None)]
    calls = [line.call and (line.call.name, json.loads(line.call.arguments)) for line in said]
    assert calls[0] == ("finish", {"message": "Done."})
    assert calls[1] == ("run", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})
    assert calls[2:] == [None, None]


@dataclass(frozen=True)
class InstalledAgent:
    """Where the parrot is installed once, whatever its program is."""

    settings: Settings
    recipe: AgentRecipe

    @property
    def sandboxes(self) -> list[Path]:
        return list((self.settings.state / "sandboxes").glob("selftest*"))

    async def check(self, program: str, again: tuple[str, ...] = ()) -> SelftestResult:
        """With another program in the place of the installed one; `again` is what its second start has besides."""
        command = ("python3", "-I", "$home/parrot.py", "$task", "$base", "$token", "$model")
        files = {"$home/parrot.py": program}
        update = {"command": command, "files": files, "again": (*command, *again) if again else ()}
        changed = self.recipe.model_copy(update=update)
        result = await selftest_runner(changed, self.settings)
        assert self.sandboxes == [], "nothing is left of it"
        return result


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> InstalledAgent:
    root = tmp_path_factory.mktemp("selftest")
    environment = {"PATH": os.environ["PATH"], "HOME": str(root), **settle(root, VERSION, "1.1")}
    settings = settings_from(environment, root / "state")
    return InstalledAgent(settings, recipes(settings.runners)["parrot"])


async def test_an_agent_that_works_passes(place: InstalledAgent) -> None:
    result = await selftest_runner(place.recipe, place.settings)
    assert result.passed, result.reason
    assert result.calls == 4
    assert place.sandboxes == []


BROKEN = {
    "syntax": ("import json\n(", "asked its model", "SyntaxError"),
    "an unknown field": (PROGRAM.replace("model=model,", "model=model, plugins=[],"), "asked its model", "not_offered"),
    "deaf": (PROGRAM.replace("content=done.stdout + done.stderr", "content='?'"), "executed commands", "Exit code 0"),
    "silent": (PROGRAM.replace('"-c", command]', '"-c", command.replace("/tmp/", "/var/")]'), "handed in", "Exit code"),
    "unwell": (f"{PROGRAM}\nsys.exit(3)", "ended well", "Exit code 3"),
}


@pytest.mark.parametrize("case", sorted(BROKEN))
async def test_a_failing_agent_is_reported_with_the_step_it_reached(place: InstalledAgent, case: str) -> None:
    program, stopped_at, told = BROKEN[case]
    result = await place.check(program)
    assert result.stopped_at == stopped_at, result
    assert told in result.reason


async def test_an_agent_that_can_be_interrupted_is_interrupted(place: InstalledAgent) -> None:
    """In the middle of a command that would take longer than anybody waits."""
    result = await place.check(remembering(PROGRAM), ("again",))
    assert result.passed, result.reason


async def test_an_agent_that_lost_its_conversation_is_reported(place: InstalledAgent) -> None:
    result = await place.check(remembering(PROGRAM), ("anew", "please"))
    assert result.stopped_at == "went on with its conversation", result


async def test_a_version_that_cannot_be_installed_is_reported(place: InstalledAgent) -> None:
    result = await selftest_runner(place.recipe.at("9.9"), place.settings)
    assert result.stopped_at == "was installed"
    assert "parrot==9.9" in result.reason
    assert "\n" not in result.reason


def check(place: InstalledAgent, *words: str, **environment: str) -> tuple[int, str]:
    """The command itself; what it asks and installs comes from the parrot's own index."""
    done = subprocess.run(
        [COMMAND, "runners", "check", *words],
        env={**place.settings.environment, "AGENT_FIX_STATE_DIR": str(place.settings.state), **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_the_newest_is_tried_before_it_is_used(place: InstalledAgent) -> None:
    code, text = check(place, "parrot", "--newest", "--json")
    [line] = json.loads(text)
    assert code == 1, "there is a newer one, works or not"
    assert (line["version"], line["newest"], line["tested_version"]) == ("1.0", "1.1", "1.1")
    assert line["selftest"]["stopped_at"] == ""
    code, text = check(place, "--versions")
    assert (code, "newest is 1.1" in text) == (1, True), text


def test_the_newest_version_in_use_is_healthy(place: InstalledAgent, tmp_path: Path) -> None:
    code, text = check(place, "parrot", **settle(tmp_path))
    assert code == 0, text
    assert "works (4 calls" in text
    assert "; the newest" in text


def test_an_index_that_says_nothing_is_not_taken_for_good_news(place: InstalledAgent, tmp_path: Path) -> None:
    code, text = check(place, "--versions", "parrot", PIP_INDEX_URL=f"file://{tmp_path}")
    assert code == 1
    assert "could not look for" in text


def test_an_unknown_name_is_refused(place: InstalledAgent) -> None:
    code, text = check(place, "robot")
    assert code == ExitCode.CONFIG
    assert "There is no runner 'robot'" in text
