"""Opens issues; each has a hidden marker, by which it is found again."""

from datetime import UTC, datetime, timedelta

from app.github import api_models
from app.github.calls import CREATE_ISSUE, LIST_ISSUES
from app.github.markers import has_text, marked
from app.github.repository_api import RepositoryApi

CLOCKS_DIFFER = timedelta(hours=1)


async def ensure_issue(api: RepositoryApi, title: str, body: str, *, key: str, login: str, since: datetime) -> int:
    """The number of our issue with this key: one that was opened since then, or else a new one."""
    earliest = since.astimezone(UTC) - CLOCKS_DIFFER
    params = {"state": "all", "since": f"{earliest:%Y-%m-%dT%H:%M:%SZ}"}
    found = await api.pages(api_models.IssueResponse, LIST_ISSUES, params=params)
    ours = (item for item in found if item.user is not None and item.user.login == login)
    there = next((item for item in ours if has_text(item.body or "", key)), None)
    if there is None:
        text = {"title": title, "body": marked(body, key)}
        there = await api.change(api_models.IssueResponse, CREATE_ISSUE, body=text)
    return there.number
