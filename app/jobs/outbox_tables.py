"""The tables of the outbox: effects that a worker requested, and receipts of what happened."""

import sqlalchemy as sa

metadata = sa.MetaData()


effects = sa.Table(
    "effects",
    metadata,
    sa.Column("seq", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("key", sa.String(160), nullable=False, unique=True),
    sa.Column("job", sa.String(40), nullable=False, index=True),
    sa.Column("epoch", sa.Integer, nullable=False),
    sa.Column("installation", sa.BigInteger, nullable=False, default=0),
    sa.Column("issue_ref", sa.JSON, nullable=False),
    sa.Column("effect", sa.JSON, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("due", sa.Double, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("owner", sa.String(80), nullable=False, default=""),
    sa.Column("reason", sa.Text, nullable=False, default=""),
    sa.Column("error", sa.JSON),
    sa.Index("ix_effects_state_due", "state", "due"),
)
"""`due`, in seconds since 1970: when a wanted effect may be claimed, or when the lease of a claimed one ends."""


receipts = sa.Table(
    "receipts",
    metadata,
    sa.Column("key", sa.String(160), primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True),
    sa.Column("job", sa.String(40), nullable=False, index=True),
    sa.Column("receipt", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
