"""Parses `.github/agent-fix.yml` into a RepoConfig, or raises an error that names each wrong line and key.

The operator's defaults are a file of the same form: its values count if a repository sets none, and what it locks
counts in any case. `AGENT_FIX_DEFAULTS` names that file, or holds its text.
"""

import pathlib
import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from app.config import value_rules as rules
from app.config.value_rules import unknown_key, wrong_value
from app.core.errors import ConfigError
from app.core.job import Budget
from app.core.model_usage import DOLLAR, ModelNames
from app.core.patch import Tree
from app.core.record import Record, StrictRecord
from app.core.task import TaskKind
from app.core.text import nearest, one_line, visible
from app.core.yaml_and_toml import WHOLE_FILE, Path, YamlDocument, YamlProblem, dotted, front_matter, read_yaml

BaseBranches = str | dict[str, str]
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


class BudgetConfig(StrictRecord):
    """Limits of a job in this repository; the server's defaults apply to absent keys."""

    usd: Money | None = Field(default=None, description="Maximum cost of one job in US dollars.")
    minutes: Annotated[float, Field(gt=0, le=1_440, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Maximum working minutes of one job; waiting does not count.",
    )
    suite_minutes: Annotated[float, Field(gt=0, le=1_440, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Maximum minutes of one run of the whole test suite (5). Of a longer one, the tests nearest to the "
        "change are run.",
    )
    rest_of_suite_minutes: Annotated[float, Field(ge=0, le=1_440, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Maximum minutes for the rest of such a suite (30), which is run once the draft is open and updates"
        " it; 0: it is not run.",
    )
    steps: Annotated[int, Field(ge=1, le=1_000)] | None = Field(
        default=None, description="Maximum model turns of one job."
    )
    usd_per_day: Money | None = Field(
        default=None, description="Maximum cost of all jobs of the repository in a day, in US dollars."
    )
    usd_per_day_actor: Money | None = Field(
        default=None, description="Maximum cost in a day, in US dollars, of all jobs that one person requests here."
    )

    def over(self, default: Budget) -> Budget:
        """The default, with the file's values in place of its own."""
        given = self.model_dump(
            include={"minutes", "steps", "suite_minutes", "rest_of_suite_minutes"}, exclude_none=True
        )
        if self.usd is not None:
            given["usd"] = round(self.usd * DOLLAR)
        return default.model_copy(update=given)


class IterateConfig(StrictRecord):
    """What the bot does by itself on its own pull request, and how often."""

    ci: bool = Field(default=True, description="Fix failing checks.")
    reviews: bool = Field(default=True, description="Address reviews that request changes.")
    conflicts: bool = Field(default=True, description="Resolve conflicts with the base branch.")
    max: Annotated[int, Field(ge=0, le=20)] = Field(
        default=3, description="Maximum number of rounds on one pull request."
    )


class GateConfig(StrictRecord):
    """A check of the repository's own. It can stop a change; it never makes a verdict better."""

    name: Annotated[str, AfterValidator(rules.gate_name)] = Field(description="How the pull request names it.")
    command: Command = Field(description="Runs in a fresh sandbox, without a network, in the repository's root.")
    must: Literal["pass", "not-worsen"] = Field(
        default="pass",
        description="`pass`: exit code 0 with the change. `not-worsen`: the number that the command prints last must"
        " not be worse with the change than without it; its exit code does not count.",
    )
    metric: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None,
        description="For `not-worsen`: text that the line with the number contains (`TOTAL`); any line if absent.",
    )
    better: Literal["higher", "lower"] | None = Field(
        default=None, description="For `not-worsen`: which numbers are better; `higher` if absent."
    )
    kinds: tuple[TaskKind, ...] = Field(default=(), description="The kinds of tasks it is for; all if absent.")

    @model_validator(mode="after")
    def _only_where_numbers_are_compared(self) -> "GateConfig":
        if self.must == "pass" and (self.metric or self.better):
            raise ValueError("has `metric` or `better`, which require `must: not-worsen`")
        return self

    def applies(self, kind: TaskKind) -> bool:
        return not self.kinds or kind in self.kinds


def _differently_named(gates: tuple[GateConfig, ...]) -> tuple[GateConfig, ...]:
    names = [gate.name.casefold() for gate in gates]
    if twice := next((gate.name for gate in gates if names.count(gate.name.casefold()) > 1), ""):
        raise ValueError(f"has two gates with the name `{twice}`")
    return gates


Gates = Annotated[tuple[GateConfig, ...], Field(max_length=10), AfterValidator(_differently_named)]


class ModelChoice(StrictRecord):
    """A model for each kind of work. `model: NAME` is short for `model: {code: NAME}`."""

    code: ModelName = Field(description="Writes the change, and does all work without a model of its own.")
    plan: ModelName | None = Field(default=None, description="Makes the plan.")
    review: ModelName | None = Field(default=None, description="Looks for counter-examples against a submitted change.")
    answer: ModelName | None = Field(default=None, description="Answers questions (`/agent ask`).")
    cheap: ModelName | None = Field(
        default=None, description="Does minor tasks: proposals for the set-up, descriptions of images."
    )

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


class RepoConfig(StrictRecord):
    """The settings of agent-fix for one repository. Every key is optional."""

    model: ModelKey | None = Field(
        default=None,
        description="The model, by its LiteLLM name, or one for each of `plan`, `code`, `review`, `answer`, `cheap`.",
    )
    reasoning: Literal["low", "medium", "high"] | None = Field(
        default=None,
        description="The model's reasoning effort; the provider's default if absent.",
    )
    fallbacks: Fallbacks = Field(default=(), description="Models to try in order if the first is unavailable.")
    runner: Annotated[str, AfterValidator(rules.runner)] | None = Field(
        default=None, description="The coding agent: `native`, or a command-line agent that the server offers."
    )
    plan: Literal["auto", "approve", "none"] = Field(
        default="auto",
        description="Plan and continue, plan and wait for `/agent approve`, or work without a plan.",
    )
    reviewer: bool = Field(
        default=True,
        description="Have a reviewer look for counter-examples against a submitted change. Without it no change is"
        " `proved`.",
    )
    setup: Commands | None = Field(
        default=None, description="Commands that prepare the project; detected if absent, none if the list is empty."
    )
    setup_by_model: bool = Field(
        default=True,
        description="Ask a model once for a set-up if none that is detected works. It runs with the same network.",
    )
    test: Command | None = Field(default=None, description="The command of the test suite; detected if absent.")
    build: Command | None = Field(
        default=None,
        description="A command that builds changed files. It is run once in every tree before its tests, outside their"
        " time limits; a change that it fails on fails.",
    )
    lint: Command | None = Field(default=None, description="A command that must not start to fail.")
    gates: Gates = Field(
        default=(),
        description="Checks of the repository's own, such as its coverage. A change that fails one is `broken`.",
    )
    network: Hosts = Field(
        default=(),
        description="Hosts that the set-up may reach besides the package indexes. No wildcards or addresses.",
    )
    budget: BudgetConfig = Field(default=BudgetConfig(), description="Limits of a job.")
    e2b_template: Annotated[str, AfterValidator(rules.e2b_template)] | None = Field(
        default=None, description="The template of E2B's machines, if the server's jobs run in E2B."
    )
    protected_paths: Patterns = Field(
        default=(),
        description="Paths that no change may touch, as in .gitignore, in addition to those always protected.",
    )
    allowed_actors: Actors = Field(
        default=(), description="If set, only these people may start a job; they need write access too."
    )
    max_open_pull_requests: Annotated[int, Field(ge=1, le=100)] | None = Field(
        default=None, description="Maximum number of the bot's open pull requests; further issues wait."
    )
    urgent_labels: Labels = Field(
        default=("P0", "priority: high"), description="Labels of issues whose jobs come before others."
    )
    pull_request: Literal["final", "early"] = Field(
        default="final",
        description="Open the draft when the work is verified (`final`) or as soon as there is a plan (`early`).",
    )
    ci: Literal["manual", "auto"] = Field(default="manual", description="Whether CI waits for `/agent ci`.")
    iterate: IterateConfig = Field(
        default=IterateConfig(), description="What the bot does by itself on its own pull request."
    )
    branch: Annotated[str, AfterValidator(rules.branch)] | None = Field(
        default=None, description="The pattern of branch names, such as `agent-fix/issue-{number}-{slug}`."
    )
    title: Annotated[str, AfterValidator(rules.title)] | None = Field(
        default=None, description="The pattern of pull request titles, such as `fix: {title} (#{number})`."
    )
    base: Annotated[dict[str, str], BeforeValidator(rules.base_branches, json_schema_input_type=BaseBranches)] = Field(
        default={},
        description="The branch to start from and to open pull requests against, instead of the default branch;"
        ' or a mapping of `default`, "label:NAME" and "milestone:NAME" to branches.',
    )
    signoff: bool = Field(
        default=False,
        description="End commit messages with `Signed-off-by` and the author, as DCO checks ask.",
    )
    sign: bool = Field(
        default=False,
        description="Have GitHub sign the commits, for rulesets that require signatures; not needed if the operator"
        " has a signing key.",
    )
    labels: Labels = Field(default=(), description="Labels for the pull request.")
    reviewers: Reviewers = Field(
        default=(),
        description="Who is asked to review: logins, or teams as `org/team` (for an App with *Members: read*).",
    )
    images: bool = Field(
        default=True,
        description="Whether a vision model describes an issue's images to the agent: GitHub attachments only,"
        " at most five.",
    )
    instructions: Annotated[str, Field(max_length=8_000)] | None = Field(
        default=None, description="What the agent should know about this repository, in plain words."
    )

    _overruled: tuple[str, ...] = PrivateAttr(default=())
    _gone: tuple[str, ...] = PrivateAttr(default=())

    @property
    def overruled(self) -> tuple[str, ...]:
        """The keys of the file whose values the operator does not let count (`app.config.repository`)."""
        return self._overruled

    @property
    def gone(self) -> tuple[str, ...]:
        """What people are told of keys of the file that have no effect any more."""
        return self._gone

    def base_for(self, labels: Iterable[str], milestone: str = "") -> str:
        """The branch for an issue with these labels, by the first key that applies; empty for the default branch."""
        has = {f"label:{label}".casefold() for label in labels} | {f"milestone:{milestone}".casefold()}
        special = (branch for key, branch in self.base.items() if key.casefold() in has)
        return next(special, self.base.get("default", ""))

    def branch_for(self, *, slug: str, number: int | None = None) -> str:
        """The branch of a task. Without a number, `{number}` in the pattern is replaced by the slug."""
        pattern = self.branch or ("agent-fix/{slug}" if number is None else "agent-fix/issue-{number}-{slug}")
        if number is None and "{number}" in pattern:
            pattern = pattern.split("/", 1)[0] + "/{slug}"
        return rules.fill(pattern, number=str(number), slug=slug)

    @property
    def branch_prefix(self) -> str:
        """The part before the slash, by which we recognise our own branches."""
        return self.branch_for(slug="x", number=1).partition("/")[0]

    def title_for(self, title: str, number: int | None = None) -> str:
        """The pull request's title. Without a number, a pattern with `{number}` is not used."""
        pattern = self.title or "{title}"
        if number is None and "{number}" in pattern:
            return title
        return rules.fill(pattern, number=str(number), title=title)


def parse_config(text: bytes, source: str = SOURCE) -> RepoConfig:
    """Raises ConfigError with a line `source:line: key: what is wrong` for each problem, first line first."""
    return parse_as(RepoConfig, text, source)


C = TypeVar("C", bound=RepoConfig)


def parse_as(kind: type[C], text: bytes, source: str) -> C:
    """As `parse_config`, for a file with further keys."""
    document = read_yaml(text)
    problems = list(document.problems)
    config = kind()
    if isinstance(document.value, dict):
        values, gone = _without_gone(document.value)
        try:
            config = kind.model_validate(values, strict=True)
            config._gone = gone
        except ValidationError as error:
            problems += [_problem(details, document, kind) for details in error.errors(include_url=False)]
    elif document.value is not None:
        problems.append(YamlProblem(1, WHOLE_FILE, "must be a mapping of keys to values, such as `test: make test`"))
    if problems:
        shown = [
            f"{source}:{line}: {one_line(key)[:80]}: {one_line(message)}"
            for line, key, message in sorted(problems, key=lambda problem: problem.line)
        ]
        if (more := len(shown) - MAX_PROBLEMS) > 0:
            shown = [*shown[:MAX_PROBLEMS], f"{source}: … and {more} more"]
        raise ConfigError("\n".join(shown), hint=f"fix {source} and try again; nothing was started")
    return config


GONE: Final = {
    "specification": "`specification` has no effect any more: examples in the plan took its place",
    "second_author": "`second_author` is now called `reviewer`",
    "model.test": "`model.test` has no effect any more; a reviewer's model is `model.review`",
}
"""Keys until 0.1, each with what a person is told: they are accepted for one release."""


def _without_gone(values: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The values without keys that are gone, and what is said of these."""
    kept, notes = dict(values), [note for key, note in GONE.items() if key in values]
    for key in GONE:
        kept.pop(key, None)
    if isinstance(kept.get("model"), dict) and "test" in kept["model"]:
        kept["model"] = {name: value for name, value in kept["model"].items() if name != "test"}
        notes.append(GONE["model.test"])
    return kept, tuple(notes)


def json_schema() -> dict[str, Any]:
    """The file's JSON schema, for editors."""
    schema = RepoConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": SOURCE}


def _problem(details: ErrorDetails, document: YamlDocument, kind: type[RepoConfig]) -> YamlProblem:
    path: Path = details["loc"]
    while path not in document.lines:  # for an item of a list that was written as a single value
        path = path[:-1]
    if details["type"] == "extra_forbidden":
        sections: dict[Path, type[Record]] = {
            (): kind,
            ("model",): ModelChoice,
            ("budget",): BudgetConfig,
            ("iterate",): IterateConfig,
            ("gates",): GateConfig,
        }
        section = sections[tuple(part for part in path[:-1] if isinstance(part, str))]
        return YamlProblem(document.lines[path], dotted(path), unknown_key(str(path[-1]), section.model_fields))
    return YamlProblem(document.lines[path], dotted(path), wrong_value(details))


DEFAULTS: Final = "AGENT_FIX_DEFAULTS"
RUNNER: Final = "AGENT_FIX_RUNNER"
FALLBACKS: Final = "AGENT_FIX_FALLBACKS"
SECTIONS: Final[dict[str, type[Record]]] = {"budget": BudgetConfig, "iterate": IterateConfig}
ADDED: Final = frozenset({"protected_paths"})
"""Keys to which a repository only adds."""


def lockable_keys() -> Iterator[str]:
    for name in RepoConfig.model_fields:
        yield name
        if name in SECTIONS:
            yield from (f"{name}.{inner}" for inner in SECTIONS[name].model_fields)


def _lockable(value: str) -> str:
    known = list(lockable_keys())
    if value not in known:
        similar = nearest(value, known)
        raise ValueError(f"`{value}` is not a known key" + (f"; did you mean `{similar}`?" if similar else ""))
    return value


class OperatorDefaults(RepoConfig):
    """The keys of a repository's file, and those that a repository cannot change."""

    lock: tuple[Annotated[str, AfterValidator(_lockable)], ...] = Field(
        default=(),
        description="Keys that neither a repository nor a command can change: `model`, `budget.usd`.",
    )

    def locks(self, key: str) -> bool:
        return key in self.lock or key.partition(".")[0] in self.lock

    def apply_to(self, config: RepoConfig) -> RepoConfig:
        """The repository's configuration, with these values if it has none or may have none."""
        if not self.model_fields_set:
            return config
        overruled: list[str] = []
        values: dict[str, Any] = {}
        for name in RepoConfig.model_fields:
            ours, theirs = getattr(self, name), getattr(config, name)
            if name in SECTIONS:
                keys = type(ours).model_fields
                values[name] = type(ours)(
                    **{key: self._chosen(f"{name}.{key}", ours, theirs, overruled) for key in keys}
                )
            elif name in ADDED:
                values[name] = tuple(dict.fromkeys((*ours, *theirs)))
            else:
                values[name] = self._chosen(name, self, config, overruled)
        merged = config.model_copy(update=values)
        merged._overruled = tuple(overruled)
        merged._gone = config._gone
        return merged

    def _chosen(self, key: str, ours: Any, theirs: Any, overruled: list[str]) -> Any:
        """The value of one key: the repository's if it sets one and may."""
        name = key.rpartition(".")[2]
        own, other = getattr(ours, name), getattr(theirs, name)
        if self.locks(key):
            if name in theirs.model_fields_set and other != own:
                overruled.append(key)
            return own
        return other if name in theirs.model_fields_set or name not in ours.model_fields_set else own


NO_DEFAULTS: Final = OperatorDefaults()


def parse_defaults(value: str) -> OperatorDefaults:
    """From a file's path or, if it has a line end or a colon and a blank, from the text itself. Raises ConfigError."""
    if "\n" in value or ": " in value:
        return parse_as(OperatorDefaults, value.encode(), DEFAULTS)
    try:
        content = pathlib.Path(value).expanduser().read_bytes()
    except (OSError, ValueError, RuntimeError) as error:  # the last for an unknown user's home directory
        reason = getattr(error, "strerror", None) or "not a path"
        raise ConfigError(f"{value[:200]} cannot be read: {reason}") from error
    return parse_as(OperatorDefaults, content, value)


def with_value(defaults: OperatorDefaults, key: str, value: object) -> OperatorDefaults:
    """The same with another value for one key. Raises ConfigError."""
    try:
        found = OperatorDefaults.model_validate({key: value}, strict=True)
    except ValidationError as error:
        details = error.errors(include_url=False)[0]
        raise ConfigError(f"{dotted(details['loc'])}: {wrong_value(details)}") from error
    return defaults.model_copy(update={key: getattr(found, key)})


DIRECTORY: Final = ".github/agent-fix/prompts"
MAX_BYTES: Final = 4_000
"""Of one file: some thousand tokens, which are sent with every turn of a job."""
MAX_NOTES: Final = 5

OverrideName = Literal[TaskKind, "plan"]
KINDS: Final[tuple[TaskKind, ...]] = get_args(TaskKind)
NAMES: Final[tuple[OverrideName, ...]] = (*KINDS, "plan")
RESERVED: Final = frozenset({"system", "ask", "default", "with"})
"""Names that would suggest that a file changes what no file can change."""
_OWN_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_FRONT_MATTER = "`replace: true` or `replace: false`"


class Override(Record):
    """One file, which extends our prompt or replaces it."""

    name: str
    """One of `NAMES`, or another: then it is used only if it is asked for."""
    text: str
    replace: bool = False
    kind: TaskKind | None = None
    """Of a prompt with a name of its own: the kind of the tasks that it is used for."""

    @property
    def path(self) -> str:
        return path_of(self.name)


class Overrides(Record):
    """A repository's usable files; `notes` explain why others are ignored."""

    files: tuple[Override, ...] = ()
    notes: tuple[str, ...] = ()

    def of(self, name: str) -> Override | None:
        return next((each for each in self.files if each.name == name), None)

    def with_file(self, file: Override) -> "Overrides":
        return self.model_copy(update={"files": (*self.files, file)})

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(each.text for each in self.files)


NO_OVERRIDES: Final = Overrides()


def own_prompt_names(paths: Iterable[str]) -> list[str]:
    """The names of a repository's own prompts, from the paths of its files."""
    names = (path.removeprefix(f"{DIRECTORY}/").removesuffix(".md") for path in paths if path.endswith(".md"))
    return sorted(filter(is_own_name, names))


def requested_prompt(name: str, overrides: Overrides, listed: Iterable[str] = ()) -> Override:
    """The prompt of that name. Raises ConfigError that names similar ones; `listed` are paths of more files."""
    if (found := overrides.of(name)) is not None and name not in NAMES:
        return found
    own = sorted({*(each.name for each in overrides.files), *own_prompt_names(listed)} - {*NAMES, name})
    similar = nearest(name, own)
    meant = f" Did you mean `{similar}`?" if similar else f" There are {', '.join(own)}." if own else ""
    why = next((note for note in overrides.notes if path_of(name) in note), "")
    raise ConfigError(f"There is no usable prompt `{path_of(name)}`.{meant} {why}".strip())


def read_overrides(tree: Tree) -> Overrides:
    """The prompt files of a commit, without symbolic links."""
    prefix = f"{DIRECTORY}/"
    entries = {path: entry for path, entry in tree.entries().items() if path.startswith(prefix)}
    plain = [path for path, entry in entries.items() if entry.mode.startswith("100")]
    small = [path for path in plain if entries[path].size <= MAX_BYTES]
    found = parse_overrides(tree.read_many(small))
    large = [_too_large(path, entries[path].size) for path in plain if entries[path].size > MAX_BYTES]
    other = [f"`{one_line(path)}` is ignored: it is not a regular file." for path in entries if path not in plain]
    return found.model_copy(update={"notes": _bounded((*found.notes, *large, *other))})


def parse_overrides(contents: dict[str, bytes]) -> Overrides:
    """As `read_overrides`, from contents by path."""
    read = [_read(path, content) for path, content in sorted(contents.items())]
    files = tuple(each for each in read if isinstance(each, Override))
    return Overrides(files=files, notes=_bounded(each for each in read if isinstance(each, str)))


def _read(path: str, content: bytes) -> Override | str:
    """The override, or a sentence that says why the file is ignored."""
    name = PurePosixPath(path).stem
    if path != path_of(name) or not (name in NAMES or is_own_name(name)):
        meant = f" Did you mean `{similar}.md`?" if (similar := _slip(name)) else ""
        names = ", ".join(f"`{known}.md`" for known in NAMES)
        how = f"prompts are {names}, and names of your own in small letters, digits and `-`"
        return f"`{one_line(path)[:120]}` is ignored: {how}.{meant}"
    if len(content) > MAX_BYTES:
        return _too_large(path, len(content))
    try:
        settings, body = front_matter(content.decode())
    except UnicodeDecodeError:
        return f"`{path}` is ignored: it is not UTF-8 text."
    override, text = _settings(name, settings), visible(body).text.strip()
    if override is None:
        also = "" if name in NAMES else f", and `kind:` with one of {', '.join(KINDS)}"
        return f"`{path}` is ignored: its front matter may only contain {_FRONT_MATTER}{also}."
    return override.model_copy(update={"text": text}) if text else f"`{path}` is ignored: it is empty."


def _settings(name: str, yaml: str) -> Override | None:
    """The override without its text; None if the front matter is invalid."""
    document = read_yaml(yaml.encode())
    settings = document.value if document.value is not None else {}
    known = {"replace"} if name in NAMES else {"replace", "kind"}
    if document.problems or not isinstance(settings, dict) or settings.keys() - known:
        return None
    replace, kind = settings.get("replace", False), settings.get("kind")
    if not isinstance(replace, bool) or (kind is not None and kind not in KINDS):
        return None
    return Override.model_validate({"name": name, "text": "", "replace": replace, "kind": kind})


def path_of(name: str) -> str:
    return f"{DIRECTORY}/{name}.md"


def is_own_name(name: str) -> bool:
    """True for the name that a repository may give to a prompt of its own."""
    return bool(_OWN_NAME.fullmatch(name)) and name not in NAMES and name not in RESERVED and not _slip(name)


def _slip(name: str) -> str:
    """The known name that was probably meant: `bugs` is not a prompt of its own."""
    return nearest(name, NAMES, 0.8)


def _too_large(path: str, size: int) -> str:
    return f"`{one_line(path)[:120]}` is ignored: it has {size:,} bytes, and the limit is {MAX_BYTES:,}."


def _bounded(notes: Iterable[str]) -> tuple[str, ...]:
    all_notes = tuple(notes)
    more = len(all_notes) - MAX_NOTES
    return all_notes if more <= 0 else (*all_notes[:MAX_NOTES], f"{more} more files in `{DIRECTORY}` are ignored too.")
