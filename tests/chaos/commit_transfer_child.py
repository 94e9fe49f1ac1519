"""A publisher that packs a commit and a worker that unpacks it, to be killed. Arguments: SPEC FAILPOINT."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from app.core import failpoints
from app.jobs.commit_transfer import CommitTransfer
from app.jobs.tables import open_database
from app.repo.git_store import GitStore


def main(spec: dict[str, str]) -> None:
    transfers = CommitTransfer(open_database(spec["database"], Path(spec["place"])), lambda: datetime.now(UTC))
    ours, theirs, commit = GitStore(Path(spec["ours"])), GitStore(Path(spec["theirs"])), spec["commit"]
    for effect in transfers.requested():
        transfers.fill(effect.repository, effect.commit, ours.pack(effect.commit))
    if not transfers.unpack_into(theirs, 1, commit):
        transfers.request(1, commit)
        sys.exit(75)


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    main(json.loads(Path(sys.argv[1]).read_text()))
