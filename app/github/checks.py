"""Reads a commit's checks, with the end of the log of failed ones, and writes our own check run."""

from contextlib import suppress

import httpx

from app.core.job import JOB_ID
from app.github.base import CHECK, NewCheckRun
from app.github.calls import (
    CREATE_CHECK_RUN,
    GET_COMBINED_STATUS,
    GET_JOB_LOG,
    LIST_ANNOTATIONS,
    LIST_CHECK_RUNS,
    UPDATE_CHECK_RUN,
)
from app.github.errors import NoAccess, TemporaryFailure
from app.github.models import (
    AnnotationResponse,
    CheckResult,
    CheckRunResponse,
    StatusResponse,
)
from app.github.repository_api import RepositoryApi

FAILED = frozenset({"failure", "timed_out", "action_required", "startup_failure", "error", "cancelled"})
LOG_END = 20_000
"""Bytes to keep from the end of a log, where the failure is."""
MAX_LOG = 64 * 1024 * 1024
MAX_SUMMARY = 65_000
"""Characters; GitHub refuses more than 65,535."""


class ChecksApi:
    """Checks and statuses of one repository's commits."""

    def __init__(self, api: RepositoryApi) -> None:
        self._api = api

    async def of(self, commit: str) -> tuple[CheckResult, ...]:
        """Every check run and commit status of a commit except our own, only the newest with each name."""
        found: dict[tuple[str, str], CheckRunResponse] = {}
        for item in await self._others(commit):
            found.setdefault((item.app_slug, item.name), item)
        checks = [await self._facts(item, source) for (source, _), item in found.items()]
        return (*checks, *await self._statuses(commit))

    async def failed(self, commit: str) -> tuple[CheckResult, ...]:
        """Failed checks and statuses except ours, without logs; empty while any check run is still running.

        Statuses are not awaited, because one may stay pending for good.
        """
        found = await self._others(commit)
        if any(item.conclusion is None for item in found):
            return ()
        bad = [await self._facts(item, "", log=False) for item in found if item.conclusion in FAILED]
        return (*bad, *(status for status in await self._statuses(commit) if status.conclusion in FAILED))

    async def ensure(self, wanted: NewCheckRun) -> str:
        """Create or update our check run; returns its address."""
        body = {
            "name": wanted.name,
            "external_id": wanted.key,
            "status": "completed" if wanted.conclusion else "in_progress",
            "output": {"title": wanted.title[:255], "summary": wanted.summary[:MAX_SUMMARY]},
        }
        if wanted.conclusion:
            body["conclusion"] = wanted.conclusion
        there = await self._own(wanted)
        if there is None:
            body["head_sha"] = wanted.commit
            try:
                made = await self._api.change(CheckRunResponse, CREATE_CHECK_RUN, body=body)
            except TemporaryFailure:
                if (there := await self._own(wanted)) is None:
                    raise
                return there.html_url or ""
            return made.html_url or ""
        if not _is_up_to_date(there, wanted):
            there = await self._api.change(CheckRunResponse, UPDATE_CHECK_RUN, there.id, body=body)
        return there.html_url or ""

    async def _own(self, wanted: NewCheckRun) -> CheckRunResponse | None:
        params = {"check_name": wanted.name, "filter": "all"}
        if app := self._api.app.app_id:
            params["app_id"] = str(app)
        found = await self._listed(wanted.commit, params)
        return next((item for item in found if item.external_id == wanted.key), None)

    async def _others(self, commit: str) -> list[CheckRunResponse]:
        return [item for item in await self._listed(commit, {"filter": "latest"}) if not self._is_own_check(item)]

    def _is_own_check(self, item: CheckRunResponse) -> bool:
        """By our App's number. A workflow's token has none that we know: then by its name and its job's id."""
        if app := self._api.app.app_id:
            return item.app == app
        return item.name == CHECK and JOB_ID.fullmatch(item.external_id or "") is not None

    async def _listed(self, commit: str, params: dict[str, str]) -> list[CheckRunResponse]:
        return await self._api.pages(CheckRunResponse, LIST_CHECK_RUNS, commit, params=params)

    async def _statuses(self, commit: str) -> list[CheckResult]:
        return [
            CheckResult(
                name=status.context,
                source="status",
                conclusion=status.state,
                summary=status.description or "",
                url=status.target_url or "",
            )
            for status in await self._api.pages(StatusResponse, GET_COMBINED_STATUS, commit)
        ]

    async def _facts(self, item: CheckRunResponse, source: str, *, log: bool = True) -> CheckResult:
        failed = log and item.conclusion in FAILED
        summary = "\n".join(part for part in (item.title, item.summary, item.text) if part)
        return CheckResult(
            id=item.id,
            app=item.app,
            name=item.name,
            source=source,
            conclusion=item.conclusion or item.status,
            summary=summary,
            url=item.html_url or "",
            log=await self._log(item) if failed else "",
        )

    async def _log(self, item: CheckRunResponse) -> str:
        """The end of a workflow job's log, which has the same id as the check; for other checks, their annotations."""
        if item.app_slug == "github-actions":
            with suppress(NoAccess):  # a log that has expired; the check itself still counts
                if address := await self._api.location(GET_JOB_LOG, item.id):
                    return await self._download(address)
        try:
            notes = await self._api.pages(AnnotationResponse, LIST_ANNOTATIONS, item.id)
        except NoAccess:
            return ""
        return "\n".join(f"{note.path}:{note.start_line}: {note.message or ''}" for note in notes)[-LOG_END:]

    async def _download(self, address: str) -> str:
        """The end of a log, read without our token, because logs are on another host."""
        tail, received = b"", 0
        try:
            async with (
                httpx.AsyncClient(transport=self._api.app.shared_transport, timeout=30.0) as client,
                client.stream("GET", address) as response,
            ):
                if not response.is_success:
                    return ""
                async for chunk in response.aiter_bytes():
                    tail, received = (tail + chunk)[-LOG_END:], received + len(chunk)
                    if received > MAX_LOG:
                        break
        except (httpx.HTTPError, httpx.InvalidURL):
            return ""
        return tail.decode("utf-8", "replace")


def _is_up_to_date(there: CheckRunResponse, wanted: NewCheckRun) -> bool:
    written = (there.title, there.summary, there.conclusion)
    return written == (wanted.title[:255], wanted.summary[:MAX_SUMMARY], wanted.conclusion)
