"""A model for each kind of work: who decides which, and that they all live off one account."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.cli.fix import FixOptions, LocalJobDraft, work_key
from app.config.repository import ModelChoice, RepoConfig, parse_config
from app.config.settings import SettingsError, settings_from
from app.core.errors import AgentFixError
from app.core.job import Budget, Job
from app.core.model_usage import ModelNames, WorkKind
from app.core.task import Issue
from app.llm.base import Message, ModelInfo, ModelRequest
from app.llm.budgeted_model import JobModels
from app.llm.errors import ModelError
from app.llm.prices import parse_prices, read_prices
from app.pipeline.wiring.job_runner import make_budgeted_models
from app.repo.git_store import GitStore
from app.repo.inspection import inspect
from tests.support.event_harness import EventHarness, event_harness
from tests.support.memory_ledger import MemoryLedger
from tests.support.openai_endpoint import OpenAIEndpoint, answer, error
from tests.support.recorded_progress import ListProgress
from tests.support.repositories import make_repository
from tests.support.scripted_model import ScriptedModel, text
from tests.support.server_jobs import job
from tests.unit.llm.test_budgeted_model import OTHER, PRICED

ENV = ModelNames(code="env/one", plan="env/plan")
HELLO = ModelRequest(messages=(Message(role="user", content="hi"),))


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[EventHarness]:
    async with event_harness(tmp_path) as made:
        yield made


KINDS: tuple[WorkKind, ...] = ("plan", "code", "answer", "cheap")


@pytest.mark.parametrize(
    ("models", "names"),
    [
        (ModelNames(code="a"), ["a", "a", "a", "a"]),
        (ModelNames(code="a", plan="b"), ["b", "a", "a", "a"]),
        (ModelNames(code="a", plan="b", answer="c", cheap="d"), ["b", "a", "c", "d"]),
    ],
)
def test_calls_without_a_model_use_the_code_model(models: ModelNames, names: list[str]) -> None:
    assert [models.of(kind) for kind in KINDS] == names


def test_older_job_without_model_choice_is_read() -> None:
    stored = job("a", model="openai/gpt-5").model_dump(mode="json")
    del stored["models"], stored["reasoning"]
    assert Job.model_validate(stored).chosen == ModelNames(code="openai/gpt-5")
    config = RepoConfig.model_validate({"model": "openai/gpt-5"})
    assert config.model == ModelChoice(code="openai/gpt-5")
    assert RepoConfig.model_validate_json(config.model_dump_json()) == config


async def test_each_call_kind_uses_its_model_and_one_ledger() -> None:
    models = {
        "a": ScriptedModel([text("code"), text("aside")], info=PRICED),
        "b": ScriptedModel([text("plan")], info=OTHER),
    }
    ledger = MemoryLedger(10_000_000)
    job_models = JobModels(ModelNames(code="a", plan="b"), models.__getitem__, ledger, ListProgress())
    answers = {kind: await job_models.of(kind).ask(kind, HELLO) for kind in ("plan", "code", "cheap")}
    assert {kind: (answer.model, answer.origin.kind) for kind, answer in answers.items()} == {
        "plan": ("other/priced", "plan"),
        "code": ("fake/priced", "code"),
        "cheap": ("fake/priced", "cheap"),
    }
    assert ledger.totals().cost == 3_000
    assert job_models.of("plan") is job_models.of("plan")


async def test_unknown_price_is_reported_once_for_all_call_kinds() -> None:
    info = ModelInfo("a/unknown", 9_000, 4_000, priced=False)
    progress, only = ListProgress(), ScriptedModel([text("1"), text("2")], info=info)
    job_models = JobModels(ModelNames(code="a"), {"a": only}.__getitem__, MemoryLedger(0), progress)
    for kind in ("plan", "code"):
        await job_models.of(kind).ask(kind, HELLO)
    assert len(progress.texts("warning")) == 1


async def test_jobs_of_one_process_share_open_circuit_breakers(tmp_path: Path) -> None:
    later = error(429, "Come back later.", headers={"retry-after": "999"})
    with OpenAIEndpoint([later]) as limited, OpenAIEndpoint([answer("one"), answer("two")]) as other:
        own = {"OPENAI_API_BASE": limited.url, "HOSTED_VLLM_API_BASE": other.url}
        settings = settings_from({"HOME": str(tmp_path), **own})
        for name, said in (("a", "one"), ("b", "two")):
            wanted = job(name, model="openai/here")
            job_models = make_budgeted_models(
                wanted, settings, MemoryLedger(1), ListProgress(), fallbacks=["hosted_vllm/there"]
            )
            got = await job_models.of("code").ask("turn.1", HELLO)
            assert (got.content, got.origin.because) == (said, "rate_limited")
        assert len(limited.requests) == 1


async def test_only_models_in_use_are_checked() -> None:
    refusal = ModelError("no key.", kind="give_up", reason="no_key")
    models = {"a": ScriptedModel([]), "b": ScriptedModel([], refuse=refusal)}
    progress = ListProgress()
    job_models = JobModels(
        ModelNames(code="a", plan="b"), models.__getitem__, MemoryLedger(1), progress, fallbacks=("b", "a")
    )
    await job_models.check("answer")
    assert progress.texts("warning") == ["The fallback cannot be used: no key."]
    with pytest.raises(ModelError):
        await job_models.check("plan", "code")


PRICES = b"""\
openai/local: {input: 0.2, output: 1, cached: 0.02, context_window: 9000, max_output: 3000}
anthropic/claude-sonnet-4-5:
  input: 1
  output: 2
"""


def test_operator_prices_override_the_price_list(tmp_path: Path) -> None:
    path = tmp_path / "prices.yml"
    path.write_bytes(PRICES)
    prices = read_prices(path)
    assert (prices["openai/local"].cached, prices["openai/local"].context_window) == (0.02, 9_000)
    environment = {"AGENT_FIX_PRICES": str(path), "OPENAI_API_BASE": "http://127.0.0.1:1/v1", "HOME": str(tmp_path)}
    for name, input_price, output_price in (
        ("openai/local", 200_000, 1_000_000),
        ("local", 200_000, 1_000_000),
        ("anthropic/claude-sonnet-4-5", 1_000_000, 2_000_000),
    ):
        settings = settings_from(environment)
        info = make_budgeted_models(job("a", model=name), settings, MemoryLedger(1), ListProgress()).of("code").info
        assert (info.input_price, info.output_price, info.priced) == (input_price, output_price, True)


def test_prices_may_be_json() -> None:
    assert parse_prices(b'{"a/b": {"input": 1, "output": 2.5}}', "p.json")["a/b"].output == 2.5


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a/b: {input: 1}", "p.yml:1: a/b: requires `output`"),
        (b"a/b:\n  input: 1\n  output: -2", "p.yml:3: a/b.output: must be at least 0, not -2"),
        (b"a/b:\n  input: 1\n  output: x", 'p.yml:3: a/b.output: must be a number, not "x"'),
        (b"a/b:\n  input: 1\n  output: .inf", "p.yml:3: a/b.output: must be a finite number, not infinity"),
        (b"a/b:\n  input: 1\n  output: 2\n  window: 5", "p.yml:4: a/b.window: is not a known key; did you mean"),
        (
            b"a/b:\n  input: 1\n  output: 2\n  max_output: 0",
            "p.yml:4: a/b.max_output: must be a positive number, not 0",
        ),
        (b"a/b: 5", "p.yml:1: a/b: must be a mapping of keys to values, not 5"),
        (b"[1]", "p.yml:1: (file): must be a mapping of models to prices"),
        (b"", "p.yml:1: (file): must be a mapping of models to prices"),
        (b"a/b: {input: 1, output: 2\n", "p.yml:1: (file): while parsing a flow mapping"),
    ],
)
def test_price_file_errors_name_line_and_key(content: bytes, said: str) -> None:
    with pytest.raises(AgentFixError) as caught:
        parse_prices(content, "p.yml")
    assert caught.value.message.startswith(said)
    assert "per million" in caught.value.hint


def test_missing_price_file_is_a_worker_settings_problem(tmp_path: Path) -> None:
    settings = settings_from({"HOME": "/h", "AGENT_FIX_PRICES": str(tmp_path / "none.yml")})
    assert [problem.name for problem in settings.problems] == ["AGENT_FIX_PRICES"]
    with pytest.raises(SettingsError, match="1 setting is") as caught:
        settings.check("worker")
    assert "AGENT_FIX_PRICES" in caught.value.hint
    with pytest.raises(AgentFixError, match=r"none\.yml cannot be read"):
        make_budgeted_models(job("a"), settings, MemoryLedger(1), ListProgress())
    with pytest.raises(SettingsError) as others:
        settings.check("receiver")
    assert "AGENT_FIX_PRICES" not in others.value.hint


CHOICE = "model: {code: my/code, plan: my/plan}\nreasoning: low\n"


async def test_repository_model_choice_is_used_by_the_job(harness: EventHarness) -> None:
    harness.configure(CHOICE)
    await harness.labels()
    made = harness.job.job
    assert (made.model, made.chosen, made.reasoning) == ("my/code", ModelNames(code="my/code", plan="my/plan"), "low")


async def test_model_in_a_comment_replaces_all_models(harness: EventHarness) -> None:
    harness.configure(CHOICE)
    await harness.says("/agent fix --model other/one")
    made = harness.job.job
    assert (made.chosen, made.reasoning) == (ModelNames(code="other/one"), ""), "nobody knows whether that one reasons"


@pytest.mark.parametrize(
    ("option", "environment", "config", "chosen"),
    [
        ("cli/one", {"AGENT_FIX_MODEL": "env/one"}, CHOICE, ModelNames(code="cli/one")),
        (None, {"AGENT_FIX_MODEL": "env/one", "AGENT_FIX_MODEL_PLAN": "env/plan"}, "", ENV),
        (None, {"AGENT_FIX_MODEL": "env/one"}, CHOICE, ModelNames(code="my/code", plan="my/plan")),
    ],
)
def test_option_overrides_the_file_and_the_file_overrides_the_environment(
    option: str | None, environment: dict[str, str], config: str, chosen: ModelNames, tmp_path: Path
) -> None:
    repository = make_repository(tmp_path / "repo", {"a.py": "x = 1\n"})
    settings = settings_from({"HOME": str(tmp_path), **environment})
    inspected = inspect(repository, None, GitStore(tmp_path / "mirror.git"))
    options = FixOptions(repo=repository, issue=tmp_path / "issue.md", model=option, reasoning="high")
    draft = LocalJobDraft(options, settings, inspected, parse_config(config.encode()), Issue(title="t", body="b"))
    made = draft.job(plan_file="", budget=Budget())
    assert (made.model, made.chosen, made.reasoning) == (chosen.code, chosen, "high")
    simple = made.model_copy(update={"models": ModelNames(), "reasoning": ""})
    assert work_key(made) != work_key(simple), "another model is another job"
