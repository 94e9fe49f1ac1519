"""One job, three models at three prices: which planned, which wrote the change, which was the fallback."""

from pathlib import Path

from tests.support import wallet_project
from tests.support.console import Console
from tests.support.conversation_model import ConversationModel, ModelQuestion, planned, submitted
from tests.support.openai_endpoint import OpenAIEndpoint, Reply, answer, error

CONFIG = """\
model: {code: openai/code, plan: hosted_vllm/planner}
fallbacks: [hosted_vllm/stand-in]
"""
PRICES = """\
openai/code: {input: 10, output: 100, cached: 1}
hosted_vllm/planner: {input: 1, output: 10, cached: 0.1}
hosted_vllm/stand-in: {input: 2, output: 20, cached: 0.2}
"""
ONE = (120 - 64) * 10 + 64 * 1 + 30 * 100
"""Micro-dollars of an answer of the dearest; the others cost a tenth and a fifth, rounded up."""


def think(asked: ModelQuestion) -> Reply:
    if asked.body["model"] == "planner":
        return planned(
            "The remainder of the division is dropped.",
            "Give it to the first people.",
            examples=wallet_project.EXAMPLES,
        )
    return submitted(wallet_project.SUMMARY, wallet_project.REPRODUCTION)


def test_each_models_calls_and_cost_are_shown(tmp_path: Path) -> None:
    (tmp_path / "prices.yml").write_text(PRICES)
    repository = wallet_project.make_wallet(tmp_path / "wallet", {".github/agent-fix.yml": CONFIG})
    work = answer(
        tools=[
            (f"c{n}", each.name, each.arguments) for n, each in enumerate((wallet_project.FIX, wallet_project.ADD_TEST))
        ]
    )
    broke = error(429, "You exceeded your current quota.", code="insufficient_quota")
    with OpenAIEndpoint([work, broke]) as code, ConversationModel(think) as others:
        own = {"OPENAI_API_BASE": code.url, "HOSTED_VLLM_API_BASE": others.url}
        console = Console(tmp_path, {**own, "AGENT_FIX_PRICES": str(tmp_path / "prices.yml")})
        done = console.fix(repository, wallet_project.ISSUE)
    assert done.code == 0, done.said
    told = done.pull_request
    note = "2 of 4 answers came from `hosted_vllm/stand-in`, because `openai/code` had no credit left."
    assert note in told.partition("note</summary>")[2]
    fallback = "`hosted_vllm/stand-in` (code as a fallback and review as a fallback)"
    models = f"models `hosted_vllm/planner` (plan), `openai/code` (code), {fallback}"
    assert models in told
    assert done.job["verification"]["verdict"] == "proved"
    assert done.job["usage"]["cost"] == ONE - (-ONE // 10) - 2 * (-ONE // 5)
    assert [request.body["model"] for request in code.requests] == ["code", "code"], "a full account is asked once"
    assert [request.body["model"] for request in others.requests] == ["planner", "stand-in"]
    assert [request.body["model"] for request in code.review_requests] == []
