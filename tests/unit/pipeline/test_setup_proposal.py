"""What a model is shown of a project that cannot be set up, and what is read from its answer."""

import json

import pytest

from app.core.verification import Execution, SuiteResult, TestCount
from app.llm.base import ModelAnswer, ModelRequest
from app.pipeline.wiring.project_setup import ProposedSetup, propose_setup, read_proposal
from app.sandbox.setup.ecosystems.base import SetupChoice
from app.verify.candidates import Candidate, Trial
from app.verify.frameworks import SuiteCommand
from tests.support.memory_tree import MemoryTree

TREE = MemoryTree(
    {
        "pyproject.toml": b"[project]\nname = 'shop'\n",
        "requirements/odd.txt": b"special==1\n",
        "src/shop.py": b"SECRET_OF_THE_SOURCE = 1\n",
    }
)
RESULT = SuiteResult(
    execution=Execution(command="pytest", exit_code=1, seconds=1, excerpt="No module named 'special'"),
    count=TestCount(passed=1, failed=9),
)
TRIAL = Trial(
    Candidate("tox.ini", "what tox.ini installs", 1, SetupChoice(), SuiteCommand("pytest -q")), 1.0, RESULT, "9 fail"
)


async def test_the_model_sees_paths_manifests_and_what_was_tried() -> None:
    seen: list[ModelRequest] = []

    async def ask(request: ModelRequest) -> ModelAnswer:
        seen.append(request)
        return ModelAnswer(content=json.dumps({"setup": ["pip install special"], "test": "pytest"}))

    found = await propose_setup(ask, TREE, [TRIAL])
    assert found == ProposedSetup(setup=("pip install special",), test="pytest")
    text = seen[0].messages[1].content
    for shown in ("name = 'shop'", "special==1", "src/shop.py", "what tox.ini installs", "No module named 'special'"):
        assert shown in text
    assert "`pytest -q`: 1 tests passed, 9 failed." in text
    assert "SECRET_OF_THE_SOURCE" not in text


@pytest.mark.parametrize(
    "answer",
    [
        "I do not know.",
        '{"setup": ["pip install a"]}',
        '{"setup": ["pip install a"], "test": " "}',
        '{"setup": [1], "test": "pytest"}',
        '{"setup": [], "test": "pytest\\nrm -r ."}',
        json.dumps({"setup": ["true"] * 13, "test": "pytest"}),
        json.dumps({"setup": ["x" * 2_001], "test": "pytest"}),
    ],
)
def test_an_answer_that_cannot_be_used_is_not_a_proposal(answer: str) -> None:
    assert read_proposal(answer) is None


def test_commands_that_are_missing_mean_that_nothing_is_installed() -> None:
    assert read_proposal('```json\n{"test": "go test ./..."}\n```') == ProposedSetup(test="go test ./...")
