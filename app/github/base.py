"""The port for publishing a change: a folder beside a repository, or GitHub's API.

Every method is idempotent, also after a crash: it looks first, and returns the result's address. No method can approve,
merge, or take a pull request out of draft.
"""

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, Protocol

from pydantic import Field, ValidationError

from app.core.clock import moment
from app.core.errors import AgentFixError, ExitCode
from app.core.job import JobState
from app.core.record import Record

GIVEN: Final = 1
"""Used as the installation's number if we were given a token, because no App is known then."""

_MARK = re.compile(r"<!-- agent-fix:job:(?P<key>[A-Za-z0-9._/-]+)(?: (?P<state>[^<>\n]{1,400}))? -->")
"""The hidden marker at the end of a text, by which the bot finds its own again; with a job's state as JSON."""
_AT_END = re.compile(_MARK.pattern + r"\s*\Z")
_ON_A_LINE = re.compile(rf"(?m)^{_MARK.pattern}[ \t\r]*$")
_KEY = re.compile(r"[A-Za-z0-9._/-]{1,120}")


class CommentState(Record):
    """What a job's status comment says, for a process that has no database: the Action's next workflow run."""

    state: JobState
    run: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """The number of the workflow run that does the work."""
    plan: bool = False
    """True if the comment shows a plan that people may edit. Others may quote what only looks like one."""
    aim: str = "fix"
    """What the job does, so that `/agent retry` does the same (`app.jobs.context.JobAim`)."""


def marker(key: str, state: CommentState | None = None) -> str:
    if not _KEY.fullmatch(key) or "--" in key:
        raise ValueError(f"{key!r} cannot be the key of a marker")
    json = f" {state.model_dump_json(exclude_defaults=True)}" if state else ""
    return f"<!-- agent-fix:job:{key}{json} -->"


def with_marker(body: str, key: str, state: CommentState | None = None) -> str:
    """The body with this marker at the end and without any other marker."""
    return f"{_MARK.sub('', body).rstrip()}\n\n{marker(key, state)}"


def has_marker(body: str, key: str) -> bool:
    """True if the text's marker is the key's, also if people wrote below it."""
    found = _last_marker(body)
    return found is not None and found["key"] == key


def read_marker(body: str) -> tuple[str, CommentState] | None:
    """The key and the state in the marker at the text's end; None without either, or if the state is not valid."""
    found = _AT_END.search(body)
    try:
        return (found["key"], CommentState.model_validate_json(found["state"] or "", strict=True)) if found else None
    except ValidationError:
        return None


def up_to_marker(body: str) -> str:
    """The text without what was written below its marker."""
    found = _last_marker(body)
    return body[: found.end()] if found else body


def _last_marker(body: str) -> re.Match[str] | None:
    """The last one that has a line of its own: people write below ours, and quote it."""
    return next(iter(deque(_ON_A_LINE.finditer(body), maxlen=1)), None)


Reaction = Literal["eyes", "rocket", "confused", "+1", "-1"]


class ReactionTarget(Record):
    """What a reaction is added to, by its id."""

    kind: Literal["issue", "comment", "review comment"]
    id: int


@dataclass(frozen=True, slots=True)
class NewPullRequest:
    """The wanted state of a draft pull request. `branch` is its head; there is one pull request for each branch."""

    branch: str
    base: str
    title: str
    body: str
    verified: bool = True
    """Without drafts in the plan, an ordinary pull request is opened only if this is true."""


Conclusion = Literal["success", "failure", "neutral", "action_required", "cancelled"]


CHECK: Final = "agent-fix"
"""The name of our check."""
CHECK_OF_CHANGE: Final = "agent-fix verify"
"""The name of our check on somebody's pull request."""


class NewCheckRun(Record):
    """The wanted state of our check run on a commit. `key` finds it again; without a conclusion it is in progress."""

    key: str
    name: str
    commit: str
    title: str
    summary: str
    conclusion: Conclusion | None = None


class Forge(Protocol):
    """A place that holds branches and pull requests."""

    async def ensure_branch(self, name: str, commit: str) -> str:
        """Make `commit` a branch; returns its name, which gets a number if the wanted name holds another commit."""

    async def ensure_pull_request(self, wanted: NewPullRequest) -> str:
        """Open the draft or update the open one; returns its address."""


class ForgeEffects(Forge, Protocol):
    """One issue or pull request on GitHub with its labels, reactions and threads."""

    @property
    def page(self) -> str:
        """The address of its page."""

    async def ensure_comment(self, key: str, body: str, state: CommentState | None = None) -> str:
        """Write the comment with this key or edit it in place; returns its address."""

    def comparison(self, base: str, branch: str) -> str:
        """The address where a person can open the pull request of a branch with one click."""

    async def tip(self, branch: str) -> str:
        """The id of a branch's newest commit; empty if there is no such branch."""

    async def replace_branch(self, name: str, commit: str, ours: Collection[str]) -> str:
        """As `ensure_branch`, but a branch of that name or its numbered variants that holds one of `ours` is moved
        to `commit`."""

    async def update_draft_status(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        """Change the body of the branch's open draft. With `close`, close it if its head is `commit`, and delete
        such a branch even without a draft. Returns the draft's address, or an empty text."""

    async def advance_branch(self, name: str, commit: str, expected: str) -> str:
        """Move our branch from `expected` to `commit`. Raises NeedsHumanAction if someone else has pushed to it."""

    async def ensure_labels_and_reviewers(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        """Add labels to our open pull request of that branch and request reviews; returns its address."""

    async def amend_pull_request(self, amend: Callable[[str], str]) -> str:
        """Change the body of this pull request, which must be ours; returns its address."""

    async def ensure_reaction(self, target: ReactionTarget, content: Reaction) -> None: ...

    async def ensure_labels(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None: ...

    async def ensure_check_run(self, wanted: NewCheckRun) -> str:
        """Create or update our check run on a commit; returns its address."""

    async def ensure_reply(self, comment: int, key: str, body: str) -> str:
        """Reply to an inline thread once; returns the reply's address."""

    async def ensure_resolved(self, thread: str) -> None: ...


class ForgeError(AgentFixError):
    """A forge could not do what was requested; `message` has the forge's words, without any token."""

    branch: str = ""
    """The branch that was pushed before."""
    compare: str = ""
    """The address where a person can open the pull request of that branch."""

    exit_code = ExitCode.OUTPUT


class TemporaryFailure(ForgeError):  # noqa: N818  # named for what to do
    """It may succeed later: a network error, a 5xx, a broken answer. The effect may have happened."""

    repeatable = True


class UnexpectedAnswer(TemporaryFailure):
    """It is cut off, or in a shape that we do not know: asking again may help, and an optional read does without."""


class RateLimited(ForgeError):  # noqa: N818
    """The forge wants no request before `until`; an earlier one makes it worse."""

    repeatable = True

    def __init__(self, message: str, *, until: datetime) -> None:
        super().__init__(message)
        self.timestamp = until.timestamp()  # a number, so that the error can be stored as JSON

    @property
    def until(self) -> datetime:
        return moment(self.timestamp)


class NoAccess(ForgeError):  # noqa: N818
    """No access: not installed, suspended, archived, moved, or a missing permission."""


class NeedsHumanAction(ForgeError):  # noqa: N818
    """The forge refused: a protected branch, a closed pull request, someone else's commits."""


class BranchMoved(NeedsHumanAction):
    """Somebody pushed to the branch or deleted it: the change has to be made anew, not pushed again."""


class WorkflowsMoved(NeedsHumanAction):
    """The branch changes a workflow file, or lacks a change of one on the base branch; GitHub refuses both."""
