"""The tables of commit transfers: requested and packed commits, and their chunks (`app.jobs.commit_transfer`)."""

import sqlalchemy as sa

metadata = sa.MetaData()

transfers = sa.Table(
    "commit_transfers",
    metadata,
    sa.Column("repository", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("commit_id", sa.String(40), primary_key=True),
    sa.Column("state", sa.String(8), nullable=False),
    sa.Column("pack", sa.String(32), nullable=False, default=""),
    sa.Column("chunks", sa.Integer, nullable=False, default=0),
    sa.Column("digest", sa.String(64), nullable=False, default=""),
    sa.Column("failures", sa.Integer, nullable=False, default=0),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("requested_at", sa.Float(53), nullable=False),
    sa.Column("used_at", sa.Float(53), nullable=False),
    sa.Column("log", sa.LargeBinary),
)
"""`state` is wanted, there or refused; `pack` is the id of the valid chunks."""

transfer_chunks = sa.Table(
    "commit_transfer_chunks",
    metadata,
    sa.Column("pack", sa.String(32), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("written_at", sa.Float(53), nullable=False),
    sa.Column("content", sa.LargeBinary, nullable=False),
)
"""The content is the last column, because SQLite reads a row from its beginning."""
