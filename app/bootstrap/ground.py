"""What a job's desk stands on: the job with its configuration and base tree, and where it is kept."""

from dataclasses import dataclass

from app.config import RepoConfig
from app.context.overrides import Overrides
from app.gitstore import GitStore
from app.job import Job
from app.jobs.lessons import SqlLessons
from app.jobs.store import JobStore
from app.settings import Settings
from app.tree import Tree


@dataclass(frozen=True, slots=True)
class Ground:
    """The same for every door; `notes` are for everybody who reads the result."""

    job: Job
    config: RepoConfig
    tree: Tree
    mirror: GitStore
    store: JobStore
    settings: Settings
    notes: tuple[str, ...] = ()
    overrides: Overrides | None = None
    """The default branch's prompts, where the base is another branch."""
    lessons: SqlLessons | None = None
    """Of the job's repository; None where none are kept."""
