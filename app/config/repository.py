"""`.github/agent-fix.yml` becomes a RepoConfig, or an error that names each wrong line and key."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails

from app.config import value_rules as rules
from app.config.messages import unknown_key, wrong_value
from app.core.errors import ConfigError
from app.core.job import Budget
from app.core.model_names import ModelNames
from app.core.record import Record
from app.core.strict_yaml import WHOLE_FILE, Path, YamlDocument, YamlProblem, dotted, read_yaml
from app.core.text import one_line

SOURCE = ".github/agent-fix.yml"
MAX_PROBLEMS = 20

Command = Annotated[str, Field(max_length=8_000), AfterValidator(rules.command)]
Commands = Annotated[
    tuple[Command, ...],
    Field(max_length=50),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
ModelName = Annotated[str, AfterValidator(rules.model)]
Fallbacks = Annotated[tuple[ModelName, ...], Field(max_length=5)]
Hosts = Annotated[tuple[Annotated[str, AfterValidator(rules.host)], ...], Field(max_length=50)]
Patterns = Annotated[tuple[Annotated[str, AfterValidator(rules.protected_path)], ...], Field(max_length=200)]
Actors = Annotated[tuple[Annotated[str, AfterValidator(rules.actor)], ...], Field(max_length=200)]
Labels = Annotated[tuple[Annotated[str, AfterValidator(rules.label)], ...], Field(max_length=20)]
Reviewers = Annotated[tuple[Annotated[str, AfterValidator(rules.reviewer)], ...], Field(max_length=15)]
Money = Annotated[float, Field(gt=0, le=10_000, allow_inf_nan=False)]


class BudgetConfig(Record):
    """Caps of a job in this repository; what is absent is the server's choice."""

    usd: Money | None = Field(default=None, description="US dollars one job may cost.")
    minutes: Annotated[float, Field(gt=0, le=1_440, allow_inf_nan=False)] | None = Field(
        default=None, description="Minutes one job may work, its suite a quarter of them; waiting is not counted."
    )
    steps: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        default=None, description="Model turns one job may take."
    )
    usd_per_day: Money | None = Field(
        default=None, description="US dollars all jobs of the repository may cost in a day."
    )
    usd_per_day_actor: Money | None = Field(
        default=None, description="US dollars the jobs that one person asked for here may cost in a day."
    )

    def over(self, default: Budget) -> Budget:
        """The default with what the file says in its place."""
        return Budget(
            usd=default.usd if self.usd is None else round(self.usd * 1_000_000),
            minutes=default.minutes if self.minutes is None else self.minutes,
            steps=default.steps if self.steps is None else self.steps,
        )


class IterateConfig(Record):
    """What the bot answers on its own pull request, and how many times."""

    ci: bool = Field(default=True, description="Mend failing checks.")
    reviews: bool = Field(default=True, description="Follow reviews that ask for changes.")
    conflicts: bool = Field(default=True, description="Resolve conflicts with the base branch.")
    max: Annotated[int, Field(ge=0, le=20)] = Field(default=3, description="Rounds on one pull request at most.")


class ModelChoice(Record):
    """A model for each kind of work. `model: NAME` is the same as `model: {code: NAME}`."""

    code: ModelName = Field(description="Writes the change, and does whatever has no model of its own.")
    plan: ModelName | None = Field(default=None, description="Makes the plan.")
    test: ModelName | None = Field(
        default=None, description="Writes the specification tests; the plan's model where absent."
    )
    answer: ModelName | None = Field(default=None, description="Answers questions (`/agent ask`).")
    cheap: ModelName | None = Field(default=None, description="Does small things beside: lessons, words for images.")

    @property
    def models(self) -> ModelNames:
        return ModelNames.model_validate({name: value or "" for name, value in self})


_NAME = {"type": "string"}
ModelKey = Annotated[
    ModelChoice,
    BeforeValidator(lambda value: value if isinstance(value, dict | ModelChoice) else {"code": value}),
    WithJsonSchema(
        {
            "anyOf": [
                _NAME,
                {
                    "type": "object",
                    "properties": {
                        name: {**_NAME, "description": field.description}
                        for name, field in ModelChoice.model_fields.items()
                    },
                    "required": ["code"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]


class RepoConfig(Record):
    """How agent-fix works in this repository. Every key is optional."""

    model: ModelKey | None = Field(
        default=None,
        description="The model, by the name LiteLLM knows, or one for each of `plan`, `test`, `code`, `answer` and"
        " `cheap`.",
    )
    reasoning: Literal["low", "medium", "high"] | None = Field(
        default=None,
        description="How hard the model is to think before it answers; the provider's choice where absent.",
    )
    fallbacks: Fallbacks = Field(default=(), description="Models to try in turn where the first cannot be reached.")
    runner: Annotated[str, AfterValidator(rules.runner)] | None = Field(
        default=None, description="The coding agent: `native`, or a command-line agent the server offers."
    )
    plan: Literal["auto", "approve", "none"] = Field(
        default="auto", description="Plan and go on, plan and wait for `/agent approve`, or work without a plan."
    )
    specification: bool = Field(
        default=True,
        description="Have tests written from the issue by an independent author before the work begins. Without them"
        " no change is `proved`.",
    )
    setup: Commands | None = Field(
        default=None, description="Commands that prepare the project; detected where absent, nothing for an empty list."
    )
    test: Command | None = Field(default=None, description="The command of the test suite; detected where absent.")
    lint: Command | None = Field(default=None, description="A command that must not begin to fail.")
    network: Hosts = Field(
        default=(),
        description="More hosts the set-up may reach, besides the package indexes. No wildcards, no addresses.",
    )
    budget: BudgetConfig = Field(default=BudgetConfig(), description="What a job may cost.")
    protected_paths: Patterns = Field(
        default=(), description="Paths no change may touch, as in .gitignore; added to those always protected."
    )
    allowed_actors: Actors = Field(
        default=(), description="Of those with write access, only these may start a job; everyone of them where empty."
    )
    max_open_pull_requests: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, description="Open pull requests of the bot at most."
    )
    pull_request: Literal["final", "early"] = Field(
        default="final", description="Open the draft when the work is verified, or once the plan stands."
    )
    ci: Literal["manual", "auto"] = Field(default="manual", description="Whether CI waits for `/agent ci`.")
    iterate: IterateConfig = Field(default=IterateConfig(), description="What the bot does on its own pull request.")
    branch: Annotated[str, AfterValidator(rules.branch)] | None = Field(
        default=None, description="The branch's name, such as `agent-fix/issue-{number}-{slug}`."
    )
    title: Annotated[str, AfterValidator(rules.title)] | None = Field(
        default=None, description="The pull request's title, such as `fix: {title} (#{number})`."
    )
    labels: Labels = Field(default=(), description="Labels of the pull request.")
    reviewers: Reviewers = Field(default=(), description="Who is asked for a review: logins, or teams as `org/team`.")
    images: bool = Field(
        default=False,
        description="Have the images of an issue described to the agent, by a model that sees. Only the forge's own"
        " attachments are fetched, at most five.",
    )
    instructions: Annotated[str, Field(max_length=8_000)] | None = Field(
        default=None, description="What the agent should know of this repository, in plain words."
    )

    def branch_for(self, *, slug: str, number: int | None = None) -> str:
        """The branch of a task; without a number a pattern's `{number}` gives way to the slug alone."""
        pattern = self.branch or ("agent-fix/{slug}" if number is None else "agent-fix/issue-{number}-{slug}")
        if number is None and "{number}" in pattern:
            pattern = pattern.split("/", 1)[0] + "/{slug}"
        return rules.fill(pattern, number=str(number), slug=slug)

    def title_for(self, title: str, number: int | None = None) -> str:
        """The pull request's title; without a number a pattern that needs one is not used."""
        pattern = self.title or "{title}"
        if number is None and "{number}" in pattern:
            return title
        return rules.fill(pattern, number=str(number), title=title)


def parse_config(text: bytes, source: str = SOURCE) -> RepoConfig:
    """Raises ConfigError with a line `source:line: key: what is wrong` for each problem, first line first."""
    document = read_yaml(text)
    problems = list(document.problems)
    config = RepoConfig()
    if isinstance(document.value, dict):
        try:
            config = RepoConfig.model_validate(document.value, strict=True)
        except ValidationError as error:
            problems += [_problem(details, document) for details in error.errors(include_url=False)]
    elif document.value is not None:
        problems.append(YamlProblem(1, WHOLE_FILE, "must be a mapping of keys to values, such as `test: make test`"))
    if problems:
        raise ConfigError(_report(problems, source), hint=f"mend {source}; nothing was started")
    return config


def json_schema() -> dict[str, Any]:
    """The file's JSON schema, for editors."""
    schema = RepoConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": SOURCE}


def _report(problems: list[YamlProblem], source: str) -> str:
    shown = [
        f"{source}:{line}: {one_line(key)[:80]}: {one_line(message)}"
        for line, key, message in sorted(problems, key=lambda problem: problem.line)
    ]
    if (more := len(shown) - MAX_PROBLEMS) > 0:
        shown = [*shown[:MAX_PROBLEMS], f"{source}: … and {more} more"]
    return "\n".join(shown)


def _problem(details: ErrorDetails, document: YamlDocument) -> YamlProblem:
    path: Path = details["loc"]
    while path not in document.lines:  # the item of a list that was written as a single value
        path = path[:-1]
    if details["type"] == "extra_forbidden":
        sections: dict[Path, type[Record]] = {
            (): RepoConfig,
            ("model",): ModelChoice,
            ("budget",): BudgetConfig,
            ("iterate",): IterateConfig,
        }
        return YamlProblem(
            document.lines[path], dotted(path), unknown_key(str(path[-1]), sections[path[:-1]].model_fields)
        )
    return YamlProblem(document.lines[path], dotted(path), wrong_value(details))
