"""An embedding model through LiteLLM, against a real endpoint on the loopback: asked once, paid for, never fatal."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.config.settings import settings_from
from app.core.clock import utc_now
from app.core.errors import AgentFixError
from app.core.lessons import github_repository_key
from app.jobs.lessons import SqlLessonStore
from app.jobs.tables import sqlite_engine
from app.llm.errors import BudgetError, ModelError
from app.llm.ledger import MemoryLedger
from app.llm.litellm import CALL, Embedding
from app.llm.prices import Price
from app.pipeline.lessons.recall import ChromaRanking, EmbeddingRanking, FullTextRanking
from app.pipeline.wiring.prompts import make_ranking
from tests.support.openai_endpoint import OpenAIEndpoint, Reply, error

KEY = "sk-canary-0123456789"


@pytest.fixture
def endpoint() -> Iterator[OpenAIEndpoint]:
    with OpenAIEndpoint() as made:
        yield made


def vectors(*found: list[float], tokens: int = 9) -> Reply:
    """In another order than asked: their places are what counts."""
    data = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(found)]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply(body=json.dumps({"object": "list", "data": data[::-1], "model": "e", "usage": usage}).encode())


def embedding(
    endpoint: OpenAIEndpoint,
    ledger: MemoryLedger,
    name: str = "openai/text-embedding-3-small",
    price: Price | None = None,
) -> Embedding:
    environment = {"OPENAI_API_BASE": endpoint.url, "OPENAI_API_KEY": KEY}
    return Embedding(name, environment=environment, ledger=ledger, price=price)


async def test_texts_are_embedded_in_order(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(vectors([1.0, 0.5], [0.0, -1.0]))
    ledger = MemoryLedger(1_000_000)
    assert await embedding(endpoint, ledger)(["one", "two"]) == [[1.0, 0.5], [0.0, -1.0]]
    (asked,) = endpoint.requests
    assert asked.path == "/v1/embeddings"
    assert (asked.body["model"], asked.body["input"]) == ("text-embedding-3-small", ["one", "two"])
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    totals = ledger.totals()
    assert (totals.calls, totals.prompt_tokens, totals.pending) == (1, 9, 0)
    assert totals.cost > 0


@pytest.mark.parametrize(
    "reply",
    [
        error(401, f"Incorrect API key provided: {KEY}"),
        error(429, "slow down"),
        error(500, "oh"),
        Reply(hang_up=True),
        Reply(body=b"<html>"),
        Reply(body=b'{"object": "list", "data": [], "model": "e"}'),
        Reply(body=b'{"data": [{"index": 0, "embedding": ["x"]}], "model": "e"}'),
        vectors([1.0]),
    ],
)
async def test_every_embedding_failure_is_a_model_error(endpoint: OpenAIEndpoint, reply: Reply) -> None:
    endpoint.script(*[reply] * 4)
    ledger = MemoryLedger(1_000_000)
    with pytest.raises(ModelError) as caught:
        await embedding(endpoint, ledger)(["one", "two"])
    assert KEY not in caught.value.message + caught.value.hint
    assert ledger.totals().pending == 0


@pytest.mark.parametrize(("reply", "tokens"), [(Reply(hang_up=True), 3), (error(429, "slow down"), 0)])
async def test_lost_embedding_call_is_booked_at_its_probable_cost(
    endpoint: OpenAIEndpoint, reply: Reply, tokens: int
) -> None:
    endpoint.script(reply, vectors([1.0], [1.0]))
    ledger = MemoryLedger(1_000_000)
    asked = embedding(endpoint, ledger, price=Price(input=3, output=0))
    with pytest.raises(ModelError):
        await asked(["one", ""])
    assert len(endpoint.requests) == 1
    totals = ledger.totals()
    assert (totals.cost, totals.prompt_tokens) == (3 * tokens, tokens)


async def test_operators_price_counts_for_embeddings(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(vectors([1.0]))
    ledger = MemoryLedger(1_000_000)
    await embedding(endpoint, ledger, "openai/own-model", price=Price(input=3, output=0))(["one"])
    assert ledger.totals().cost == 27


async def test_embedding_without_budget_or_key_is_refused(endpoint: OpenAIEndpoint) -> None:
    with pytest.raises(BudgetError):
        await embedding(endpoint, MemoryLedger(0))(["long " * 50_000])
    keyless = Embedding("cohere/embed-v4", environment={}, ledger=MemoryLedger(1))
    with pytest.raises(ModelError):
        await keyless(["one"])
    assert endpoint.requests == []


async def test_unlisted_embedding_model_is_called(endpoint: OpenAIEndpoint) -> None:
    endpoint.script(vectors([1.0]))
    ledger = MemoryLedger(0)
    assert await embedding(endpoint, ledger, "openai/own-model")(["one"]) == [[1.0]]
    assert ledger.totals().cost == 0
    assert ledger.stored_answer(CALL) is None


@pytest.mark.parametrize(
    ("value", "read", "ranking"),
    [
        ("", "fts", FullTextRanking),
        ("fts", "fts", FullTextRanking),
        ("embedding:openai/text-embedding-3-small", "embedding:openai/text-embedding-3-small", EmbeddingRanking),
        ("off", "off", FullTextRanking),
    ],
)
def test_environment_chooses_the_ranking(value: str, read: str, ranking: type, tmp_path: Path) -> None:
    settings = settings_from({"AGENT_FIX_LESSONS": value}, tmp_path)
    assert (settings.lessons, settings.problems) == (read, ())
    rows = SqlLessonStore(sqlite_engine(tmp_path / "l.db"), utc_now, github_repository_key(1))
    assert isinstance(make_ranking(settings, MemoryLedger(0), rows), ranking)


def test_chroma_uses_its_own_path_or_names_its_extra(tmp_path: Path) -> None:
    settings = settings_from({"AGENT_FIX_LESSONS": "chroma:kept/there"}, tmp_path)
    assert settings.lessons == f"chroma:{Path.cwd() / 'kept' / 'there'}"
    rows = SqlLessonStore(sqlite_engine(tmp_path / "l.db"), utc_now, github_repository_key(1))
    if importlib.util.find_spec("chromadb"):
        assert isinstance(make_ranking(settings, MemoryLedger(0), rows), ChromaRanking)
    else:
        with pytest.raises(AgentFixError) as caught:
            make_ranking(settings, MemoryLedger(0), rows)
        assert "'.[chroma]'" in caught.value.hint


@pytest.mark.parametrize("value", ["yes", "embedding:", "chroma:", "chroma", "FTS", "embedding: "])
def test_unknown_lessons_setting_is_reported(value: str, tmp_path: Path) -> None:
    settings = settings_from({"AGENT_FIX_LESSONS": value}, tmp_path)
    (problem,) = settings.problems
    assert problem.name == "AGENT_FIX_LESSONS"
    assert problem.hint == "Set it to fts, embedding:MODEL, chroma:PATH or off."
