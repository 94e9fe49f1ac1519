"""What a job runner starts from: the job with its configuration and base tree, and where it is stored."""

from dataclasses import dataclass

from app.config.prompt_overrides import Overrides
from app.config.repository import RepoConfig
from app.config.settings import Settings
from app.core.job import Job
from app.core.tree import Tree
from app.jobs.lessons import SqlLessonStore
from app.jobs.store import JobStore
from app.repo.git_store import GitStore


@dataclass(frozen=True, slots=True)
class JobInputs:
    """The same for server, Action and command line; `notes` go to everyone who reads the result."""

    job: Job
    config: RepoConfig
    tree: Tree
    mirror: GitStore
    store: JobStore
    settings: Settings
    notes: tuple[str, ...] = ()
    overrides: Overrides | None = None
    """The default branch's prompts, if the base is another branch."""
    lessons: SqlLessonStore | None = None
    """The lessons of the job's repository; None if there are none."""
