"""The draft that a living job opened early: what is said there is said to that job, which belongs to an issue."""

from app.forge.facts import PullRequestFacts
from app.jobs.roster import Commissioned
from app.publish.early import early_key
from app.reception.books import Books
from app.reception.circumstances import Matter


def job_behind(pull: PullRequestFacts | None, here: Commissioned | None, us: int, books: Books) -> Commissioned | None:
    """The job that lives `here`, else the one that opened this pull request early, else the last one here. Blocking."""
    if pull is None or pull.author != us or pull.head_repository is None or (here is not None and not here.row.final):
        return here
    for each in books.roster.of(repository=pull.head_repository):
        draft = books.intents.standing(early_key(each.job.id)) if each.commission.opens_early else None
        if draft is not None and draft.receipt is not None and draft.receipt.branch == pull.head_branch:
            return each
    return here


def issue_behind(matter: Matter) -> int:
    """The issue whose living job opened this draft early; 0 where there is none."""
    job = matter.found.job
    if job is None or job.row.final or job.commission.place.number == matter.number:
        return 0
    return job.commission.place.number
