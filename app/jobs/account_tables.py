"""Tables for people and operators: sessions, the log of who did what, and what GitHub still allows."""

import sqlalchemy as sa

metadata = sa.MetaData()

web_sessions = sa.Table(
    "web_sessions",
    metadata,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("user", sa.BigInteger, nullable=False),
    sa.Column("login", sa.String(100), nullable=False),
    sa.Column("token", sa.LargeBinary, nullable=False),
    sa.Column("rights", sa.JSON, nullable=False),
    sa.Column("rights_at", sa.Double, nullable=False),
    sa.Column("created_at", sa.Double, nullable=False),
    sa.Column("expires_at", sa.Double, nullable=False, index=True),
)
"""Sessions by the digest of their cookie. `token` is the person's GitHub token, encrypted with a key that is made from
the cookie, so that the database alone reveals nothing. `rights`: their permission by repository, as of `rights_at`.
Times in seconds since 1970."""

login_holders = sa.Table(
    "login_holders",
    metadata,
    sa.Column("login", sa.String(100), primary_key=True),
    sa.Column("user", sa.BigInteger, nullable=False),
)
"""The account that signed in first with a login, in lower case: a login that was given up can be taken by anybody."""

audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("seq", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
    sa.Column("at", sa.Double, nullable=False, index=True),
    sa.Column("who", sa.String(100), nullable=False),
    sa.Column("way", sa.String(16), nullable=False),
    sa.Column("action", sa.String(32), nullable=False),
    sa.Column("address", sa.String(45), nullable=False, default=""),
    sa.Column("job", sa.String(40), nullable=False, default=""),
    sa.Column("detail", sa.Text, nullable=False, default=""),
)
"""Who did what, when, from where and to which job; never changed, deleted after 400 days. `way`: `dashboard`, `api`,
`github` or `terminal`; `address` is the client's for the first two."""

github_limits = sa.Table(
    "github_limits",
    metadata,
    sa.Column("installation", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("resource", sa.String(40), primary_key=True),
    sa.Column("remaining", sa.BigInteger, nullable=False),
    sa.Column("limit", sa.BigInteger, nullable=False),
    sa.Column("resets_at", sa.Double, nullable=False),
    sa.Column("at", sa.Double, nullable=False),
)
"""What the publisher's last answers from GitHub said of each rate limit. Installation 0 is the App itself."""
