"""A tool call through LiteLLM where nothing is set and nothing but our dependencies is installed."""

import subprocess
import sys
import textwrap
from pathlib import Path

from app.llm.base import ModelAnswer
from tests.support.openai_endpoint import OpenAIEndpoint, answer

CLEAN = """
    import asyncio, sys
    sys.path.insert(0, sys.argv[1])
    from app.llm.base import Message, ModelRequest, ToolSpec
    from app.llm.litellm import LiteLLMModel
    tool = ToolSpec(name="bash", description="", parameters={"type": "object", "properties": {}})
    request = ModelRequest(messages=(Message(role="user", content="go"),), tools=(tool,))
    model = LiteLLMModel("openai/local", environment={"OPENAI_API_BASE": sys.argv[2]})
    assert "litellm" not in sys.modules
    asyncio.run(model.check())
    assert "litellm" not in sys.modules
    model.warm()
    print(asyncio.run(model.complete(request)).model_dump_json())
"""


def test_tool_call_works_in_a_clean_environment(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=from-a-stray-file\n")
    with OpenAIEndpoint([answer("", tools=[("c1", "bash", "{}")])]) as endpoint:
        done = call_a_tool(endpoint, tmp_path)
    assert done.stderr == ""
    assert ModelAnswer.model_validate_json(done.stdout).tool_calls[0].name == "bash"
    assert endpoint.requests[0].headers["authorization"] == "Bearer no-key"


def call_a_tool(endpoint: OpenAIEndpoint, cwd: Path) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[3]
    return subprocess.run(
        [sys.executable, "-I", "-c", textwrap.dedent(CLEAN), str(root), endpoint.url],
        env={},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
