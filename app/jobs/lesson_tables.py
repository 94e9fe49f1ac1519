"""The tables of lessons: a repository's lessons, the numbers it has used, and what each job was shown."""

import sqlalchemy as sa

metadata = sa.MetaData()

lessons = sa.Table(
    "lessons",
    metadata,
    sa.Column("repository", sa.String(80), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("topic", sa.String(80), nullable=False),
    sa.Column("kind", sa.String(20), nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    sa.Column("citation", sa.JSON),
    sa.Column("job", sa.String(40), nullable=False, default=""),
    sa.Column("author", sa.String(80), nullable=False),
    sa.Column("key", sa.String(160), nullable=False, default=""),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False),
    sa.Column("forgotten", sa.Boolean, nullable=False, default=False),
    sa.Column("uses", sa.Integer, nullable=False, default=0),
    sa.Column("vector", sa.LargeBinary),
    sa.Column("vector_of", sa.String(160), nullable=False, default=""),
    sa.Index("ix_lessons_topic", "repository", "topic", unique=True),
)
"""`repository` is the forge's number of it, or the digest of a path of this machine. `key` is of what was said last:
to remember, or to forget. A forgotten lesson keeps its topic and nothing else until it expires, so that it is not
learned again. `vector` is the text in the terms of the model `vector_of`. Times in seconds since 1970.
"""

lesson_numbers = sa.Table(
    "lesson_numbers",
    metadata,
    sa.Column("repository", sa.String(80), primary_key=True),
    sa.Column("last", sa.Integer, nullable=False),
)

recalled_lessons = sa.Table(
    "recalled_lessons",
    metadata,
    sa.Column("job", sa.String(40), primary_key=True),
    sa.Column("repository", sa.String(80), nullable=False),
    sa.Column("lessons", sa.JSON, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What a job was shown, as it was then: its prompt is the same whichever process makes it."""
