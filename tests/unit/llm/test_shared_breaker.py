"""Pauses of providers that all processes with one database keep."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Engine

from app.llm.base import ModelInfo
from app.llm.circuit_breaker import FAILURES, CircuitBreakers
from app.llm.sql_ledger import pauses


class Time:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def info(name: str = "openai/gpt-5", endpoint: str = "") -> ModelInfo:
    return ModelInfo(name=name, context_window=1_000, max_output=100, endpoint=endpoint)


def database(place: Path) -> Engine:
    engine = sa.create_engine(f"sqlite:///{place / 'shared.db'}")
    pauses.metadata.create_all(engine)
    return engine


def process(engine: Engine, time: Time) -> CircuitBreakers:
    return CircuitBreakers(time, engine, time)


def test_rate_limit_seen_by_one_process_applies_to_all(tmp_path: Path) -> None:
    time, engine = Time(), database(tmp_path)
    one, other = process(engine, time), process(engine, time)
    one.of(info()).failed("rate_limited", 60)
    waiting = other.of(info())
    assert (waiting.delay(), waiting.why) == (60, "rate_limited")
    assert other.of(info("openai/another")).delay() == 0, "its limit is its own"
    assert other.of(info("anthropic/claude")).delay() == 0
    assert other.of(info(endpoint="http://user:secret@gateway")).delay() == 0, "another endpoint"
    time.now += 61
    assert waiting.delay() == 0


@pytest.mark.parametrize("why", ["quota", "bad_key", "no_key", "unreachable", "connection_lost"])
def test_reasons_of_a_provider_pause_all_its_models(tmp_path: Path, why: str) -> None:
    time, engine = Time(), database(tmp_path)
    process(engine, time).of(info()).failed(why, 60)
    waiting = process(engine, time).of(info("openai/another"))
    assert (waiting.delay(), waiting.why) == (60, why)


@pytest.mark.parametrize("why", ["server_error", "overloaded", "rate_limited", "timeout", "stream_cut"])
def test_success_of_another_model_does_not_close_a_breaker(tmp_path: Path, why: str) -> None:
    breakers = process(database(tmp_path), Time())
    for _ in range(FAILURES):
        breakers.of(info()).failed(why)
        breakers.of(info("openai/another")).succeeded()
    assert breakers.of(info("openai/another")).delay() == 0
    assert breakers.of(info()).delay() > 0


def test_open_breaker_is_shared_and_the_longer_pause_wins(tmp_path: Path) -> None:
    time, engine = Time(), database(tmp_path)
    one, other = process(engine, time), process(engine, time)
    for _ in range(FAILURES):
        assert other.of(info()).delay() == 0
        one.of(info()).failed("server_error")
    assert other.of(info()).delay() > 0
    other.of(info()).failed("rate_limit", 200)
    one.of(info()).failed("rate_limit", 5)
    assert process(engine, time).of(info()).delay() == 200


def test_missing_database_does_not_stop_calls(tmp_path: Path) -> None:
    time, engine = Time(), database(tmp_path)
    pauses.metadata.drop_all(engine)
    breaker = process(engine, time).of(info())
    breaker.failed("rate_limit", 60)
    assert breaker.delay() == 60, "what this process knows itself"


def test_endpoint_address_is_not_stored(tmp_path: Path) -> None:
    engine = database(tmp_path)
    process(engine, Time()).of(info(endpoint="http://user:secret@gateway")).failed("rate_limit", 60)
    with engine.connect() as db:
        assert "secret" not in str(db.execute(sa.select(pauses)).all())
