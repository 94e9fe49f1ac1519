"""What was requested, where, by whom, and at which base commit."""

from typing import Literal

from app.core.record import Record


class IssueRef(Record):
    """The issue or pull request that a job belongs to. The repository is identified by its number, not its name."""

    installation: int
    repository: int
    owner: str
    name: str
    number: int


TaskKind = Literal["bug", "feature", "tests", "refactoring", "dependencies", "ci", "review", "conflict"]
"""What sort of work it is (`app.core.task_kind`): how it is gone about, and what counts as proof of it."""
STRUCTURAL: frozenset[TaskKind] = frozenset({"refactoring", "dependencies"})
"""Nothing needs to be red before and green after: the suite on both is what counts."""


class Person(Record):
    """The person named in a commit trailer."""

    name: str
    email: str


class Issue(Record):
    """An issue's text as people wrote it; hidden characters are removed and counted (`app.core.text`)."""

    title: str
    body: str
    number: int | None = None
    url: str = ""
    """The issue's page, if the command line read it from GitHub."""
    hidden_characters: int = 0
    labels: tuple[str, ...] = ()


MAX_ISSUE_BODY = 65_536
"""Characters that the model is shown of an issue's own text: GitHub's limit. Of a file that has more, both ends."""


class TaskSection(Record):
    """Text shown to the model as data beside the issue: the branch's diff, a review thread, the end of a log.

    The harness writes the title; other people wrote the text. Its length was limited before it came here.
    """

    title: str
    text: str


class TaskImage(Record):
    """An image of the issue that may be described to the agent; its bytes are in the job's blobs under `digest`.

    `number` is its position among all images of the text, from 1.
    """

    number: int
    media_type: str
    digest: str
    width: int
    height: int


class TaskOrigin(Record):
    """Where on GitHub a task was requested, by numeric ids, which survive renames and transfers."""

    installation: int
    repository: int
    number: int
    is_pull_request: bool
    actor: int
    """The person who asked; their permission is checked again before anything is published."""


class AllowedPath(Record):
    """A path that the configuration protects and that a person let one job change; a directory ends with `/`."""

    path: str
    by: str = ""
    """The person's login; empty if it was allowed on the command line."""

    def covers(self, path: str) -> bool:
        return path.startswith(self.path) if self.path.endswith("/") else path == self.path


class Task(Record):
    """One thing to do in one repository.

    `base` is the full id of the commit the work starts from, `base_ref` the name it was resolved from (a full ref or
    what the user typed). `slug` is derived from the title and safe in a branch name. For a pull request, `issue` is the
    pull request's own text.
    """

    repository: str
    issue: Issue
    base: str
    base_ref: str
    slug: str
    requester: Person | None = None
    origin: TaskOrigin | None = None
    """None for tasks from the command line."""
    request: str = ""
    """What the authorised person who asked wants now, in their words, in addition to the issue."""
    sections: tuple[TaskSection, ...] = ()
    kind: TaskKind = "bug"
    kind_reason: str = ""
    """Why the task is of that kind, as the end of a sentence; empty if no rule applied."""
    prompt: str = ""
    """The repository's own prompt that was asked for (`app.config.prompt_overrides`); empty if none was."""
    allowed_paths: tuple[AllowedPath, ...] = ()
    """Protected paths that this job may change."""
    images: tuple[TaskImage, ...] = ()
    """Images to describe, if the repository or the command enabled that (`app.pipeline.wiring.prompts`)."""
    images_left_out: tuple[str, ...] = ()
    """Notes for people about the images that were left out."""
    fixed_by: str = ""
    """For `tests`: the full id of the fix, a commit in the base's history. The tests must fail without it."""

    @property
    def expects_red(self) -> bool:
        """True if some test must fail before the change and pass after it."""
        return not (self.kind in STRUCTURAL or self.kind == "conflict" or (self.kind == "tests" and not self.fixed_by))

    @property
    def follows_up(self) -> bool:
        """True if the task is about an existing pull request."""
        return self.origin is not None and self.origin.is_pull_request
