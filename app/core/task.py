"""What was asked, where, by whom, at which base commit."""

from typing import Literal

from app.core.record import Record

TaskKind = Literal["bug", "feature", "tests", "refactoring", "dependencies", "ci", "review", "conflict"]
"""What sort of work it is (`app.core.task_kind`): how it is gone about, and what counts as proof of it."""
STRUCTURAL: frozenset[TaskKind] = frozenset({"refactoring", "dependencies"})
"""Nothing needs to be red before and green after: the suite on both is what counts."""


class Person(Record):
    """Who asked, as a commit trailer names them."""

    name: str
    email: str


class Issue(Record):
    """An issue's text as people wrote it, hidden characters removed and counted (`app.core.text`)."""

    title: str
    body: str
    number: int | None = None
    hidden_characters: int = 0
    labels: tuple[str, ...] = ()


MAX_ISSUE_BODY = 65_536
"""Characters that the model is shown of an issue's own text: GitHub's limit. Of a file that has more, both ends."""


class TaskSection(Record):
    """A text that the model is shown as data, beside the issue: the branch's diff, a review thread, the end of a log.

    The title is the harness's; the text is whoever wrote it, bounded before it came here.
    """

    title: str
    text: str


class TaskImage(Record):
    """An image of the issue that may be described to the agent; its bytes are among the job's blobs, by `digest`.

    `number` is its place among all the images of the text, from 1.
    """

    number: int
    media_type: str
    digest: str
    width: int
    height: int


class TaskOrigin(Record):
    """Where on a forge a task was asked for, by numeric ids, which outlive renames and transfers."""

    installation: int
    repository: int
    number: int
    is_pull_request: bool
    actor: int
    """Who asked; their permission is asked of the forge again before anything is published."""


class Task(Record):
    """One thing to do in one repository.

    `base` is the full commit id the work starts from, `base_ref` the name it was resolved from (a full ref
    or what the user typed). `slug` is derived from the title and is safe in a branch name. On a pull request the
    issue is the pull request's own text.
    """

    repository: str
    issue: Issue
    base: str
    base_ref: str
    slug: str
    requester: Person | None = None
    origin: TaskOrigin | None = None
    """None on the command line."""
    request: str = ""
    """The words of the person who asked, who may: what is wanted now, beside the issue."""
    sections: tuple[TaskSection, ...] = ()
    kind: TaskKind = "bug"
    kind_reason: str = ""
    """Why it is of that kind, as the end of a sentence; empty where nothing spoke for any."""
    images: tuple[TaskImage, ...] = ()
    """Where the repository, or the command, has them described (`app.pipeline.image_descriptions`)."""
    images_left_out: tuple[str, ...] = ()
    """What people are told of the others."""
    fixed_by: str = ""
    """Of `tests`: the commit of the base's history that is the fix, in full; what they test is its absence."""

    @property
    def expects_red(self) -> bool:
        """Whether something is to fail before and to pass after."""
        return not (self.kind in STRUCTURAL or self.kind == "conflict" or (self.kind == "tests" and not self.fixed_by))

    @property
    def follows_up(self) -> bool:
        """Whether it is about a pull request that is there already."""
        return self.origin is not None and self.origin.is_pull_request
