"""The tables of the API for programs: requests for jobs, versions of plans, keys, and answers to repeat."""

import sqlalchemy as sa

metadata = sa.MetaData()

job_requests = sa.Table(
    "job_requests",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("request", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What programs asked for, by the id of the job that they were promised. Times in seconds since 1970."""

plan_versions = sa.Table(
    "plan_versions",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("plan", sa.JSON, nullable=False),
    sa.Column("who", sa.String(80), nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""Every version of a job's plan, from 1; never changed, never deleted."""

api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("name", sa.String(40), primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", sa.String(80), nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
)
"""Keys for the API, of which only digests are stored."""

idempotency_keys = sa.Table(
    "idempotency_keys",
    metadata,
    sa.Column("key", sa.String(64), primary_key=True),
    sa.Column("request", sa.String(64), nullable=False),
    sa.Column("id", sa.String(40), nullable=False),
    sa.Column("answer", sa.JSON),
    sa.Column("at", sa.Double, nullable=False, index=True),
)
"""Requests that may be repeated: `id` names what they create, `answer` is what they were answered."""
