"""A good file is read as people meant it; a broken one is named by line and key, all its faults at once."""

from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import jsonschema  # type: ignore[import-untyped]  # part of LiteLLM's own dependencies
import pytest
import yaml

from app.config.repository import (
    BudgetConfig,
    GateConfig,
    IterateConfig,
    ModelChoice,
    OperatorDefaults,
    RepoConfig,
    json_schema,
    parse_as,
    parse_config,
)
from app.core.errors import ConfigError, ExitCode
from app.core.job import Budget
from app.core.yaml_and_toml import MAX_BYTES

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"

EVERY_KEY = """\
model: openai/gpt-5
reasoning: high
fallbacks: [anthropic/claude-sonnet-5]
runner: native
plan: approve
reviewer: false
setup_by_model: false
setup:
  - pip install -e .
  - make fixtures
test: make test
build: make all
lint: "make lint  # not a comment"
gates:
  - {name: types, command: mypy .}
  - name: coverage
    command: pytest -q --cov
    must: not-worsen
    metric: TOTAL
    better: higher
    kinds: [bug, feature]
network: [Packages.Example.ORG, files.example.com]
budget:
  usd: 2.5
  minutes: 45
  steps: 60
  usd_per_day: 20
  usd_per_day_actor: 6
e2b_template: my-team/python-312
protected_paths: [infra/, "*.sql"]
allowed_actors: [octocat, "renovate-app[bot]"]
max_open_pull_requests: 3
urgent_labels: [P1]
pull_request: early
ci: auto
iterate: {ci: false, reviews: true, conflicts: true, max: 2}
branch: bot/{number}-{slug}
title: "fix: {title} (#{number})"
base: {default: develop, "label:hotfix": main}
sign: true
signoff: true
labels: [bug, needs review]
reviewers: [octocat, octo-org/maintainers]
images: true
instructions: |
  Use British spelling.
  Never edit generated files.
"""


def test_every_key_is_read() -> None:
    config = parse_config(EVERY_KEY.encode())
    assert config == RepoConfig(
        model=ModelChoice(code="openai/gpt-5"),
        reasoning="high",
        fallbacks=("anthropic/claude-sonnet-5",),
        runner="native",
        plan="approve",
        reviewer=False,
        setup_by_model=False,
        setup=("pip install -e .", "make fixtures"),
        test="make test",
        build="make all",
        lint="make lint  # not a comment",
        gates=(
            GateConfig(name="types", command="mypy ."),
            GateConfig(
                name="coverage",
                command="pytest -q --cov",
                must="not-worsen",
                metric="TOTAL",
                better="higher",
                kinds=("bug", "feature"),
            ),
        ),
        network=("packages.example.org", "files.example.com"),
        budget=BudgetConfig(usd=2.5, minutes=45, steps=60, usd_per_day=20, usd_per_day_actor=6),
        e2b_template="my-team/python-312",
        protected_paths=("infra/", "*.sql"),
        allowed_actors=("octocat", "renovate-app[bot]"),
        max_open_pull_requests=3,
        urgent_labels=("P1",),
        pull_request="early",
        ci="auto",
        iterate=IterateConfig(ci=False, max=2),
        branch="bot/{number}-{slug}",
        title="fix: {title} (#{number})",
        base={"default": "develop", "label:hotfix": "main"},
        sign=True,
        signoff=True,
        labels=("bug", "needs review"),
        reviewers=("octocat", "octo-org/maintainers"),
        images=True,
        instructions="Use British spelling.\nNever edit generated files.\n",
    )
    assert config.model_fields_set == set(RepoConfig.model_fields)
    assert RepoConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "test:\nbudget:\n", "{}"])
def test_every_key_is_optional(text: str) -> None:
    assert parse_config(text.encode()) == RepoConfig()


@pytest.mark.parametrize(
    ("text", "setup"),
    [
        ("setup: make deps", ("make deps",)),
        ("setup: |\n  make a\n  make b", ("make a\nmake b",)),
        ("setup: []", ()),
        ("setup:", None),
    ],
)
def test_setup_is_one_command_or_several(text: str, setup: tuple[str, ...] | None) -> None:
    assert parse_config(text.encode()).setup == setup


@pytest.mark.parametrize("word", ["yes", "no", "on", "off", "12:30", "0x10", "2026-11-21", "1_000"])
def test_yaml_1_1_booleans_are_read_as_text(word: str) -> None:
    assert parse_config(f"test: {word}".encode()).test == word


def test_protected_paths_only_add() -> None:
    assert parse_config(b"protected_paths: []").protected_paths == ()  # the server's own stay, whatever stands here


BROKEN = [
    # the file
    (b"a: &a [*a,*a,*a]", 1, "a", "anchors (`&a`) are not allowed"),
    (b"test: x\nlint: *x", 2, "lint", "aliases (`*x`) are not allowed"),
    (b"test: a\nlint: b\ntest: c", 3, "test", "is given twice (first on line 1)"),
    (b"budget:\n  usd: 1\n  usd: 2", 3, "budget.usd", "is given twice (first on line 2)"),
    (b"budget:\n\tusd: 1", 2, "budget", "a tab cannot indent YAML"),
    (b"\xef\xbb\xbftest: x", 1, "(file)", "byte order mark"),
    (b"budget:\n  <<: {usd: 1}", 2, "budget", "merge keys (`<<`) are not allowed"),
    (b"test: !!python/object/apply:os.system [id]", 1, "test", "tags (`!\u2026`) are not allowed".encode()),
    (b"test: x\n---\ntest: y", 2, "(file)", "a second document"),
    (b"# x\n" * 20_000, 1, "(file)", "is 80,000 bytes; at most 65,536"),
    (b"test: x\nlint: \xff", 2, "(file)", "is not UTF-8 text"),
    (b"test: x\nlint: \x07", 2, "(file)", "holds the control character U+0007"),
    ("test: x\nlint: a\u202eb".encode(), 2, "lint", "holds 1 hidden character"),
    (b"test: make: test", 1, "test", "put text that holds `: ` in quotes"),
    (b"test: x\nlabels: [a, b", 2, "labels", "expected ',' or ']'"),
    (b"test: x\nlint: 'y\n\n\n", 2, "lint", "found unexpected end of stream"),
    (b"- test: x", 1, "(file)", "must be a mapping of keys to values"),
    (b"just words", 1, "(file)", "must be a mapping of keys to values"),
    (b"? [test]\n: x", 1, "(file)", "a key must be a word"),
    (b"test: " + b"[" * 50_000, 1, "test[0][0][0][0][0][0][0][0]", "is nested more than 8 deep"),
    # keys
    (b"lint: x\ntets: y", 2, "tets", "did you mean `test`?"),
    (
        b"budget:\n  dollars: 5",
        2,
        "budget.dollars",
        "known keys are usd, minutes, suite_minutes, rest_of_suite_minutes",
    ),
    (b"budget: {USD: 5}", 1, "budget.USD", "did you mean `usd`?"),
    (b"iterate: {review: true}", 1, "iterate.review", "did you mean `reviews`?"),
    (b"timeout: 1e309", 1, "timeout", "did you mean `budget.minutes`?"),
    (b"branch_prefix: ../../main", 1, "branch_prefix", "did you mean `branch`?"),
    (b"model: openai/x\napi_base: http://evil", 2, "api_base", "is a server setting"),
    (b"openai_api_key: x", 1, "openai_api_key", "is a server setting"),
    (b"sandbox: none", 1, "sandbox", "is a server setting"),
    (b"allow_bots: ['*']", 1, "allow_bots", "is a server setting"),
    (b"1: x", 1, "1", "is not a known key"),
    # types
    (b"test: 5", 1, "test", "must be text, not 5; put it in quotes"),
    (b"test: [a, b]", 1, "test", "must be text, not a list"),
    (b"test: ''", 1, "test", "must be a command, not blank"),
    (b"setup: [a, '  ']", 1, "setup[1]", "must be a command, not blank"),
    (b"setup:\n  - a\n  - b: c", 3, "setup[1]", "must be text, not a mapping"),
    (b"setup: ' '", 1, "setup", "must be a command, not blank"),
    (b"model: [a/b]", 1, "model", "must be text, not a list"),
    (b"model:\n  plan: openai/o3", 1, "model", "requires `code`"),
    (b"model:\n  code: a/b\n  coed: a/b", 3, "model.coed", "is not a known key; did you mean `code`?"),
    (b"model:\n  code: a/b\n  other: a/b", 3, "model.other", "known keys are code, plan, review, answer, cheap"),
    (b"model:\n  code: a/b\n  plan: recorded/x", 3, "model.plan", "recordings are chosen on the command line"),
    (b"model:\n  code: a/b\n  cheap: 5", 3, "model.cheap", "must be text, not 5; put it in quotes"),
    (b"reasoning: huge", 1, "reasoning", 'must be low, medium or high, not "huge"'),
    (b"prices: {a/b: {input: 1}}", 1, "prices", "is a server setting"),
    (b"model: true", 1, "model", "must be text, not true; put it in quotes"),
    (b"labels: bug", 1, "labels", 'must be a list such as [a, b], not "bug"'),
    (b"labels: [a, ~]", 1, "labels[1]", "must be text, not null"),
    (b"budget: 5", 1, "budget", "must be a mapping of keys to values, not 5"),
    (b"iterate: true", 1, "iterate", "must be a mapping of keys to values, not true"),
    (b"iterate:\n  ci: yes", 2, "iterate.ci", 'must be true or false, not "yes"'),
    (b"plan: maybe", 1, "plan", 'must be auto, approve or none, not "maybe"'),
    (b"ci: on", 1, "ci", 'must be manual or auto, not "on"'),
    (b"pull_request: ready", 1, "pull_request", 'must be final or early, not "ready"'),
    # gates
    (b"gates: {name: a}", 1, "gates", "must be a list such as [a, b], not a mapping"),
    (b"gates:\n  - name: a", 2, "gates[0]", "requires `command` too"),
    (b"gates:\n  - name: a\n    command: b\n    must: not_worsen", 4, "gates[0].must", "must be pass or not-worsen"),
    (b"gates:\n  - {name: a, command: b}\n  - {name: A, command: b}", 1, "gates", "has two gates with the name `a`"),
    (b"gates:\n  - name: a\n    command: b\n    metrics: c", 4, "gates[0].metrics", "did you mean `metric`?"),
    (b"gates: [{name: a, command: b, better: lower}]", 1, "gates[0]", "which require `must: not-worsen`"),
    (b"gates: [{name: a, command: b, kinds: [bugs]}]", 1, "gates[0].kinds[0]", "must be bug, feature, tests"),
    (b"gates: [{name: a, command: b, must: not-worsen, metric: ''}]", 1, "gates[0].metric", "must not be empty"),
    (b"gates: [{name: '`a', command: b}]", 1, "gates[0].name", "must be a short name such as coverage"),
    # numbers
    (b"budget:\n  usd: -1", 2, "budget.usd", "must be a positive number, not -1"),
    (b"budget: {usd: 0}", 1, "budget.usd", "must be a positive number, not 0"),
    (b"budget: {usd: .nan}", 1, "budget.usd", "must be a finite number, not NaN"),
    (b"budget: {usd: NaN}", 1, "budget.usd", 'must be a number, not "NaN"'),
    (b"budget: {minutes: 1e309}", 1, "budget.minutes", "must be a finite number, not infinity"),
    (b"budget: {minutes: -.inf}", 1, "budget.minutes", "must be a finite number, not infinity"),
    ('budget: {usd: "∞"}'.encode(), 1, "budget.usd", 'must be a number, not "∞"'.encode()),
    (b"budget: {usd: true}", 1, "budget.usd", "must be a number, not true"),
    (b"budget: {usd: 99999999999999999999999}", 1, "budget.usd", "must be at most 10,000"),
    (b"budget: {steps: 1.5}", 1, "budget.steps", "must be a whole number, not 1.5"),
    (b"budget: {steps: 0}", 1, "budget.steps", "must be at least 1, not 0"),
    (b"max_open_pull_requests: 0", 1, "max_open_pull_requests", "must be at least 1, not 0"),
    (b"iterate: {max: 100}", 1, "iterate.max", "must be at most 20, not 100"),
    # hosts
    (b"network: ['*']", 1, "network[0]", "not a wildcard"),
    (b"network: {allow: ['*']}", 1, "network", "must be a list such as [a, b], not a mapping"),
    (b"network: ['*.github.com']", 1, "network[0]", "not a wildcard"),
    (b"network:\n- a.example.org\n- 169.254.169.254", 3, "network[1]", "must be a host name, not an IP address"),
    (b"network: ['2130706433']", 1, "network[0]", "must be a host name, not an IP address"),
    (b"network: ['0x7f.1']", 1, "network[0]", "must be a host name, not an IP address"),
    (b"network: ['127.0.0.1:80']", 1, "network[0]", "must be a host name, not an IP address"),
    (b"network: ['::1', '[::1]']", 1, "network[0]", "must be a host name, not an IP address"),
    (b"network: ['[::1]:443']", 1, "network[0]", "must be a host name, not an IP address"),
    (b"network: [localhost]", 1, "network[0]", "must be a public host"),
    (b"network: [LOCALHOST.]", 1, "network[0]", "must be a public host"),
    (b"network: [metadata.google.internal]", 1, "network[0]", "must be a public host"),
    (b"network: ['https://example.org/']", 1, "network[0]", "without scheme, path or user"),
    (b"network: ['user@example.org']", 1, "network[0]", "without scheme, path or user"),
    (b"network: ['example.org:8080']", 1, "network[0]", "without a port"),
    ("network: [bücher.example]".encode(), 1, "network[0]", "in its xn-- form"),
    (b"network: [intranet]", 1, "network[0]", "must be a host name such as"),
    (b"network: ['-a.example.org']", 1, "network[0]", "must be a host name such as"),
    (b"network: ['a b.example.org']", 1, "network[0]", "must be a host name such as"),
    # names and patterns
    (b"model: recorded/../../etc/passwd", 1, "model", "recordings are chosen on the command line"),
    (b"model: 'a b'", 1, "model", "must be a model name"),
    (b"fallbacks: [a, b, c, d, e, f]", 1, "fallbacks", "has 6 items; the limit is 5"),
    (b"e2b_template: ../evil", 1, "e2b_template", "must be the name or id of an E2B template"),
    (b"runner: ../evil", 1, "runner", "must be a runner name"),
    (b"branch: ../../main", 1, "branch", "must contain {number} or {slug}"),
    (b"branch: -f/{slug}", 1, "branch", "must be a branch with its own prefix"),
    (b"branch: refs/heads/main-{number}", 1, "branch", "without refs/"),
    (b"branch: bot/../{slug}", 1, "branch", "must be a branch with its own prefix"),
    (b"branch: '{slug}'", 1, "branch", "must be a branch with its own prefix"),
    (b"branch: '{slug}/x'", 1, "branch", "must be a branch with its own prefix"),
    (b"branch: bot/{slug}.lock", 1, "branch", "must be a branch with its own prefix"),
    (b"branch: bot/@{{slug}", 1, "branch", "has an unmatched brace"),
    (b"branch: bot/{actor}", 1, "branch", "unknown placeholder {actor}; known ones are {number} and {slug}"),
    (b"title: Fix", 1, "title", "must contain {title}"),
    (b"title: '{title} {body}'", 1, "title", "unknown placeholder {body}"),
    (b'title: "{title}\\nFixes #1"', 1, "title", "one line of text"),
    (b"protected_paths: ['!.github/workflows/']", 1, "protected_paths[0]", "must not start with `!`"),
    (b"protected_paths: [../x]", 1, "protected_paths[0]", "must not contain `..`"),
    (b"protected_paths: ['*a*a*a*b']", 1, "protected_paths[0]", "must have at most 3 stars between two slashes"),
    (b"protected_paths: ['']", 1, "protected_paths[0]", "must be a pattern as in .gitignore"),
    (b"protected_paths: [/]", 1, "protected_paths[0]", "must be a pattern as in .gitignore"),
    (b"allowed_actors: ['*']", 1, "allowed_actors[0]", "wildcards and teams are not accepted"),
    (b"allowed_actors: ['@octocat']", 1, "allowed_actors[0]", "must be written without the @"),
    (b"reviewers: [a/b/c]", 1, "reviewers[0]", "must be a GitHub login"),
    (b"labels: [agent-fix]", 1, "labels[0]", "is a label that agent-fix itself uses"),
    (b"labels: [" + b"x" * 51 + b"]", 1, "labels[0]", "is 51 characters long; the limit is 50"),
    (b"instructions: " + b"x" * 8_001, 1, "instructions", "is 8,001 characters long; the limit is 8,000"),
]


@pytest.mark.parametrize(("text", "line", "key", "words"), BROKEN, ids=lambda value: str(value)[:40])
def test_errors_name_file_line_and_key(text: bytes, line: int, key: str, words: str | bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    message = caught.value.message.splitlines()[0]
    assert message.startswith(f".github/agent-fix.yml:{line}: {key}: ")
    assert (words if isinstance(words, str) else words.decode()) in message
    assert caught.value.code == ExitCode.CONFIG


ODD: tuple[object, ...] = (
    *("", "a: b\n", "x" * 9_000, -1, 10**30, 0.5, float("nan"), True, None),
    *([], ["a"] * 300, {}, {"": ""}, {"name": 1}),
)
"""Values of every type that YAML has, and at both ends of every limit."""


def everywhere(value: object, odd: object) -> Iterator[object]:
    """The value with the odd one in place of each of its parts in turn, and beside them."""
    yield odd
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: changed} for changed in everywhere(inner, odd))
        yield {**value, "odd": odd}
    if isinstance(value, list):
        for place, inner in enumerate(value):
            yield from ([*value[:place], changed, *value[place + 1 :]] for changed in everywhere(inner, odd))
        yield [*value, odd]


@pytest.mark.parametrize("odd", ODD, ids=lambda value: repr(value)[:20])
def test_any_value_in_any_place_is_accepted_or_explained(odd: object) -> None:
    valid = yaml.safe_load(EVERY_KEY) | {"lock": ["model"]}
    for text in map(yaml.safe_dump, map(deepcopy, everywhere(valid, odd))):
        with suppress(ConfigError):
            parse_as(OperatorDefaults, text.encode(), "defaults.yml")


def test_all_errors_are_listed_in_line_order() -> None:
    text = b"plan: maybe\nnetwork:\n  - localhost\n  - '*'\ntest: 5\nplan: auto\nwhat: x\n"
    with pytest.raises(ConfigError) as caught:
        parse_config(text, source="other.yml")
    assert [line.split(": ")[0] for line in caught.value.message.splitlines()] == [
        "other.yml:1",
        "other.yml:3",
        "other.yml:4",
        "other.yml:5",
        "other.yml:6",
        "other.yml:7",
    ]


def test_number_of_listed_errors_is_limited() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(b"".join(b"x%d: 1\n" % number for number in range(5_000)))
    lines = caught.value.message.splitlines()
    assert len(lines) == 21
    assert lines[-1].endswith("… and 4980 more")


@pytest.mark.parametrize(
    "filler", [b"[", b"{", b"- ", b"? ", b"a: ", b"&a ", b"!", b"'", b"%", b"[a,", b'"\\\n', b"|\n "]
)
@pytest.mark.timeout(20)
def test_parsing_hostile_repetition_terminates(filler: bytes) -> None:
    text = filler * (MAX_BYTES // len(filler))
    with pytest.raises(ConfigError):
        parse_config(text)


def test_error_messages_drop_control_characters_from_key_names() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(b'"a\\u202eb\\e[31m\\n::stop": 1')
    assert "\u202e" not in caught.value.message
    assert "\x1b" not in caught.value.message
    assert all(line.startswith(".github/agent-fix.yml:1: ") for line in caught.value.message.splitlines())


def test_budget_keys_override_the_default() -> None:
    default = Budget(usd=5_000_000, minutes=60, steps=100)
    assert BudgetConfig().over(default) == default
    assert BudgetConfig(usd=0.1, steps=7).over(default) == Budget(usd=100_000, minutes=60, steps=7)
    assert BudgetConfig(suite_minutes=20).over(default) == default.model_copy(update={"suite_minutes": 20})


@pytest.mark.parametrize(
    ("minutes", "chosen", "seconds"),
    [(60, None, 300), (12, None, 180), (60, 20, 1_200), (10, 20, 600), (60, 0.5, 30)],
)
def test_suite_timeout_is_five_minutes_or_as_chosen_within_the_job_limit(
    minutes: float, chosen: float | None, seconds: float
) -> None:
    assert Budget(minutes=minutes, suite_minutes=chosen).suite_seconds == seconds


@pytest.mark.parametrize(("minutes", "chosen", "rest"), [(60, None, 30), (12, None, 6), (60, 90, 90), (60, 0, 0)])
def test_the_rest_of_a_suite_has_half_an_hour_or_as_chosen(minutes: float, chosen: float | None, rest: float) -> None:
    assert BudgetConfig(rest_of_suite_minutes=chosen).over(Budget(minutes=minutes)).rest_minutes == rest


def test_branch_and_title_follow_their_templates() -> None:
    plain = RepoConfig()
    assert plain.branch_for(slug="a-b", number=7) == "agent-fix/issue-7-a-b"
    assert plain.branch_for(slug="a-b") == "agent-fix/a-b"
    assert plain.title_for("Crash in {slug}", 7) == "Crash in {slug}"
    own = parse_config(b"branch: bot/fix-{number}\ntitle: 'fix: {title} (#{number})'")
    assert own.branch_for(slug="a-b", number=7) == "bot/fix-7"
    assert own.branch_for(slug="a-b") == "bot/a-b"
    assert own.title_for("Crash in {number}", 7) == "fix: Crash in {number} (#7)"
    assert own.title_for("Crash") == "Crash"


def test_the_schema_accepts_what_the_code_accepts() -> None:
    jsonschema.validate(yaml.safe_load(EVERY_KEY), json_schema())
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"tets": "x"}, json_schema())


def test_every_key_has_a_description() -> None:
    for model in (RepoConfig, ModelChoice, BudgetConfig, IterateConfig, GateConfig):
        assert [name for name, field in model.model_fields.items() if not field.description] == []


def test_reference_page_shows_every_key_and_a_valid_file() -> None:
    page = (REFERENCE / "configuration.md").read_text()
    example = page.split("```yaml\n")[1].split("```")[0]
    assert parse_config(example.encode()).budget.usd == 2.5
    keys = {f"budget.{name}" for name in BudgetConfig.model_fields} | {
        f"iterate.{name}" for name in IterateConfig.model_fields
    }
    keys |= {f"gates[].{name}" for name in GateConfig.model_fields}
    keys |= set(RepoConfig.model_fields) - {"budget", "iterate"}
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
    with pytest.raises(ConfigError) as caught:
        parse_config(b"\n" * 5 + b"budget:\n  usd: -1\n\nprotected_path: [a]\n")
    assert caught.value.message in page


def test_every_example_in_the_documentation_is_valid() -> None:
    page = (REFERENCE / "configuration.md").read_text()
    examples = [parse_config(part.split("```")[0].encode()) for part in page.split("```yaml\n")[1:]]
    assert [gate.name for config in examples for gate in config.gates] == [
        "types",
        "coverage",
        "mutation score",
        "warnings",
    ]


def test_keys_that_are_gone_are_accepted_with_a_note() -> None:
    config = parse_config(b"specification: false\nsecond_author: true\nmodel:\n  code: a/b\n  test: c/d\n")
    assert config.model is not None
    assert config.model.code == "a/b"
    assert [note.split("`")[1] for note in config.gone] == ["specification", "second_author", "model.test"]
    assert parse_config(b"test: x\n").gone == ()
