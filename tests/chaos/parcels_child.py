"""A publisher that fills a parcel and a worker that unpacks it, to be killed: `parcels_child SPEC FAILPOINT`."""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from app import failpoints
from app.gitstore import GitStore
from app.jobs.database import open_database
from app.jobs.parcels import Parcels


def main(spec: dict[str, str]) -> None:
    parcels = Parcels(open_database(spec["database"], Path(spec["place"])), lambda: datetime.now(UTC))
    ours, theirs, commit = GitStore(Path(spec["ours"])), GitStore(Path(spec["theirs"])), spec["commit"]
    for wish in parcels.wanted():
        parcels.fill(wish.repository, wish.commit, ours.pack(wish.commit))
    if not parcels.unpack_into(theirs, 1, commit):
        parcels.want(1, commit)
        sys.exit(75)


if __name__ == "__main__":
    failpoints.arm(sys.argv[2])
    main(json.loads(Path(sys.argv[1]).read_text()))
