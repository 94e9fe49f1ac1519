"""The filter of the job list, as the list's address carries it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Final, get_args
from urllib.parse import urlencode

from app.core.job import JobState
from app.core.verification import Verdict
from app.jobs.job_list import JobFilter, SortOrder
from app.server.web import formatting

STATES: Final[tuple[str, ...]] = (
    *sorted(formatting.ACTIVE),
    *sorted(formatting.WAITS),
    *sorted(formatting.DONE | formatting.ENDED),
)
VERDICTS: Final[tuple[str, ...]] = get_args(Verdict)
SORTS: Final[Mapping[str, str]] = {
    "newest": "Newest first",
    "oldest": "Oldest first",
    "changed": "Last changed first",
    "cost": "Most expensive first",
}
MAX_PAGE: Final = 100_000


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What the address asks for; values that mean nothing are left out."""

    state: str = ""
    repository: str = ""
    person: str = ""
    verdict: str = ""
    q: str = ""
    since: str = ""
    until: str = ""
    sort: SortOrder = "newest"
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "ListQuery":
        state, verdict, sort, page = (query.get(name, "") for name in ("state", "verdict", "sort", "page"))
        return cls(
            state=state if state in formatting.GROUPS or state in STATES else "",
            repository=query.get("repository", "")[:300],
            person=query.get("person", "").strip().removeprefix("@")[:100],
            verdict=verdict if verdict in VERDICTS else "",
            q=query.get("q", "").strip()[:200],
            since=_day(query.get("since", "")),
            until=_day(query.get("until", "")),
            sort=sort if sort in get_args(SortOrder) else "newest",  # type: ignore[arg-type]  # it was just looked up
            page=min(int(page), MAX_PAGE) if page.isascii() and page.isdigit() and len(page) < 16 and int(page) else 1,
        )

    @property
    def states(self) -> tuple[JobState, ...]:
        return tuple(formatting.GROUPS.get(self.state, ())) or ((self.state,) if self.state else ())  # type: ignore[return-value]

    @property
    def filters(self) -> bool:
        """True if anything is filtered."""
        return replace(self, sort="newest", page=1) != ListQuery()

    def job_filter(self, repository: int | None, visible: frozenset[int] | None) -> JobFilter:
        since, until = (date.fromisoformat(day) if day else None for day in (self.since, self.until))
        return JobFilter(self.states, repository, self.person, self.verdict, self.q, since, until, visible)

    def address(self, **changes: str | int) -> str:
        """The URL of the same list with some values changed; it begins at the first page unless told."""
        query = {name: getattr(self, name) for name in self.__slots__} | {"page": 1} | changes
        given = {name: value for name, value in query.items() if value and (name, value) not in _IMPLIED}
        return f"/?{urlencode(given)}" if given else "/"


_IMPLIED: Final = {("sort", "newest"), ("page", 1)}


def _day(text: str) -> str:
    """A date as the page's own fields write it, else nothing."""
    try:
        found = date.fromisoformat(text)
    except ValueError:
        return ""
    return found.isoformat() if 2000 <= found.year < 2100 else ""
