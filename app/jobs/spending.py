"""What a repository's jobs have cost lately, from the ledger of model calls."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from app.jobs.tables import commissions
from app.model.base import MicroUSD
from app.model.sql_ledger import calls


def spent(db: Connection, repository: int, since: float) -> MicroUSD:
    """Of the jobs that were admitted since then (seconds since 1970), lost and pending calls included."""
    both = calls.join(commissions, commissions.c.job == calls.c.job_id)
    lately = (commissions.c.repository == repository, commissions.c.created_at > since)
    query = sa.select(sa.func.coalesce(sa.func.sum(calls.c.cost), 0)).select_from(both).where(*lately)
    return int(db.execute(query).scalar_one())
