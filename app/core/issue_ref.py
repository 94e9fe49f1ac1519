"""Identifies one issue or pull request of one repository."""

from app.core.record import Record


class IssueRef(Record):
    """The issue or pull request that a job belongs to. The repository is identified by its number, not its name."""

    installation: int
    repository: int
    owner: str
    name: str
    number: int
