"""The operator's defaults: what counts where a repository says nothing, where it does, and where it may not."""

from operator import attrgetter
from pathlib import Path

import pytest

from app.config.repository import NO_DEFAULTS, RepoConfig, lockable_keys, parse_config, parse_defaults
from app.config.settings import SettingsError, settings_from
from app.core.errors import ConfigError
from app.triggers.commands import CommandOptions

OPERATOR = """\
runner: codex
max_open_pull_requests: 2
budget: {usd: 2, steps: 40}
protected_paths: [infra/]
gates: [{name: types, command: mypy .}]
ci: auto
lock: [runner, budget.usd, max_open_pull_requests]
"""


def test_repository_without_a_file_gets_the_operator_defaults() -> None:
    config = parse_defaults(OPERATOR).apply_to(RepoConfig())
    assert (config.runner, config.max_open_pull_requests, config.ci) == ("codex", 2, "auto")
    assert (config.budget.usd, config.budget.steps, config.budget.minutes) == (2, 40, None)
    assert [gate.name for gate in config.gates] == ["types"]
    assert config.overruled == ()


def test_repository_sets_unlocked_keys_and_only_adds_protected_paths() -> None:
    own = parse_config(
        b"runner: native\nbudget: {usd: 50, steps: 7}\nci: manual\ngates: []\nprotected_paths: [docs/]\ntest: make\n"
    )
    config = parse_defaults(OPERATOR).apply_to(own)
    assert (config.runner, config.budget.usd, config.budget.steps) == ("codex", 2, 7)
    assert (config.ci, config.gates, config.test) == ("manual", (), "make")
    assert config.protected_paths == ("infra/", "docs/")
    assert config.overruled == ("runner", "budget.usd")


def test_locked_key_without_a_value_keeps_the_built_in_default() -> None:
    config = parse_defaults("lock: [allowed_actors, budget]\n").apply_to(parse_config(b"budget: {usd: 9}\nplan: none"))
    assert (config.budget.usd, config.plan, config.overruled) == (None, "none", ("budget.usd",))


def test_without_defaults_nothing_changes() -> None:
    config = parse_config(b"plan: none")
    assert NO_DEFAULTS.apply_to(config) is config


@pytest.mark.parametrize(
    ("options", "locked"),
    [
        (CommandOptions(runner="native"), "runner"),
        (CommandOptions(budget=1), "budget.usd"),
        (CommandOptions(extra=1), "budget.usd"),
        (CommandOptions(model="a/b", kind="bug"), ""),
    ],
)
def test_command_options_cannot_change_locked_keys(options: CommandOptions, locked: str) -> None:
    assert options.locked_by(parse_defaults(OPERATOR)) == locked
    assert options.locked_by(NO_DEFAULTS) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lock: [modle]\n", "AGENT_FIX_DEFAULTS:1: lock[0]: `modle` is not a known key; did you mean `model`?"),
        ("runner: native\nlock: model\n", "AGENT_FIX_DEFAULTS:2: lock: must be a list"),
        ("budget:\n  usdd: 1\n", "AGENT_FIX_DEFAULTS:2: budget.usdd: is not a known key; did you mean `usd`?"),
        ("/nowhere/defaults.yml", "/nowhere/defaults.yml cannot be read: No such file or directory"),
    ],
)
def test_errors_in_the_defaults_name_line_and_key(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_defaults(text)
    assert caught.value.message.startswith(said)
    with pytest.raises(SettingsError) as refused:
        settings_from({"AGENT_FIX_DEFAULTS": text}, Path("/nowhere")).check("publisher")
    assert said in refused.value.hint


def test_environment_variables_override_the_defaults_file(tmp_path: Path) -> None:
    (tmp_path / "defaults.yml").write_text(OPERATOR)
    environment = {"AGENT_FIX_DEFAULTS": str(tmp_path / "defaults.yml"), "AGENT_FIX_FALLBACKS": "a/b, c/d"}
    found = settings_from({**environment, "AGENT_FIX_RUNNER": "kilo"}, tmp_path).defaults
    assert (found.runner, found.fallbacks, found.locks("runner")) == ("kilo", ("a/b", "c/d"), True)
    assert found.apply_to(RepoConfig()).fallbacks == ("a/b", "c/d")


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("RUNNER", "../evil", "runner: must be a runner name"),
        ("RUNNER", "co'dex", "must be a runner name"),
        ("FALLBACKS", "a/b, c d", "fallbacks[1]: must be"),
        ("FALLBACKS", ",".join(["a/b"] * 6), "has 6 items"),
    ],
)
def test_a_wrong_variable_is_named_alone(tmp_path: Path, name: str, value: str, said: str) -> None:
    right = {"AGENT_FIX_RUNNER": "kilo", "AGENT_FIX_FALLBACKS": "a/b"}
    with pytest.raises(SettingsError) as refused:
        settings_from({**right, f"AGENT_FIX_{name}": value}, tmp_path).check("publisher")
    (problem,) = (each for each in refused.value.problems if "cannot be used" in each)
    assert problem.startswith(f"AGENT_FIX_{name} cannot be used:")
    assert said in problem
    assert "AGENT_FIX_" not in problem.removeprefix(f"AGENT_FIX_{name}")


VALUES = {
    "model": ("a/b", "c/d"),
    "reasoning": ("low", "high"),
    "sign": ("true", "false"),
    "signoff": ("true", "false"),
    "fallbacks": ("[a/b]", "[c/d]"),
    "runner": ("codex", "kilo"),
    "plan": ("approve", "none"),
    "reviewer": ("false", "true"),
    "setup_by_model": ("false", "true"),
    "setup": ("[make]", "[make all]"),
    "test": ("make", "make test"),
    "build": ("make", "make all"),
    "lint": ("ruff check", "flake8"),
    "gates": ("[{name: types, command: mypy .}]", "[]"),
    "network": ("[a.example]", "[b.example]"),
    "budget": ("{usd: 2}", "{usd: 3}"),
    "budget.usd": ("2", "3"),
    "budget.minutes": ("20", "30"),
    "budget.suite_minutes": ("4", "5"),
    "budget.rest_of_suite_minutes": ("20", "30"),
    "budget.steps": ("20", "30"),
    "budget.usd_per_day": ("20", "30"),
    "budget.usd_per_day_actor": ("20", "30"),
    "e2b_template": ("base", "other"),
    "allowed_actors": ("[ada]", "[grace]"),
    "max_open_pull_requests": ("2", "3"),
    "urgent_labels": ("[now]", "[soon]"),
    "pull_request": ("early", "final"),
    "ci": ("auto", "manual"),
    "iterate": ("{max: 1}", "{max: 2}"),
    "iterate.ci": ("false", "true"),
    "iterate.reviews": ("false", "true"),
    "iterate.conflicts": ("false", "true"),
    "iterate.max": ("1", "2"),
    "base": ("develop", "trunk"),
    "branch": ("ours/{number}", "theirs/{number}"),
    "title": ("'fix: {title}'", "'bug: {title}'"),
    "labels": ("[ours]", "[theirs]"),
    "reviewers": ("[ada]", "[grace]"),
    "images": ("false", "true"),
    "instructions": ("Be brief.", "Be thorough."),
}
"""Of each key, a value of the operator's and one of a repository's."""


def _written(key: str, value: str) -> str:
    section, _, name = key.rpartition(".")
    return f"{section}: {{{name}: {value}}}\n" if section else f"{name}: {value}\n"


@pytest.mark.parametrize("key", sorted(set(lockable_keys()) - {"protected_paths"}))
def test_every_key_has_a_default_that_can_be_locked(key: str) -> None:
    """All but `protected_paths`, to which repositories only add."""
    value = attrgetter(key)
    text = _written(key, VALUES[key][0])
    open_default, locked, own = parse_defaults(text), parse_defaults(f"{text}lock: [{key}]\n"), RepoConfig()
    configured = parse_config(_written(key, VALUES[key][1]).encode())
    assert value(open_default) not in (value(own), value(configured))
    assert value(open_default.apply_to(own)) == value(locked.apply_to(configured)) == value(open_default)
    assert value(open_default.apply_to(configured)) == value(configured)
    assert locked.apply_to(configured).overruled[0].startswith(key)
