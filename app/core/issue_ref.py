"""Which issue or pull request of which repository is meant."""

from app.core.record import Record


class IssueRef(Record):
    """The issue or pull request that a job belongs to. The repository's number decides, not its name."""

    installation: int
    repository: int
    owner: str
    name: str
    number: int
