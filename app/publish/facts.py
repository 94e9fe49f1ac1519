"""Everything a pull request's text is made of: facts in, words out (`app.publish.comments`)."""

from app.gitformat import FileStat
from app.model.budget import Totals
from app.noun import Noun
from app.plan import Plan
from app.task import Task
from app.verify.facts import Verification


class PullRequestFacts(Noun):
    """What was asked, done, run and spent. `summary` and `plan` are the model's words, all else is the harness's."""

    task: Task
    job: str
    branch: str
    commit: str
    """The head commit's full id."""
    verification: Verification
    plan: Plan | None = None
    summary: str = ""
    changes: tuple[FileStat, ...] = ()
    usage: Totals = Totals()
    model: str = ""
    recorded: bool = False
    """True where the model's answers came from a recording: then tokens and cost are those of the recording."""
    runner: str = "native"
    turns: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
