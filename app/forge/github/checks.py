"""How the checks of a commit stand, with the end of the log where one failed; and our own check run."""

import httpx

from app.forge.base import CheckRun
from app.forge.errors import TryAgain
from app.forge.facts import CheckFacts
from app.forge.github import wire
from app.forge.github.calls import (
    CREATE_CHECK_RUN,
    GET_COMBINED_STATUS,
    GET_JOB_LOG,
    LIST_ANNOTATIONS,
    LIST_CHECK_RUNS,
    UPDATE_CHECK_RUN,
)
from app.forge.github.door import Door

FAILED = frozenset({"failure", "timed_out", "action_required", "startup_failure", "error", "cancelled"})
LOG_END = 20_000
"""Bytes of a log that are kept: its end, where the failure is."""
MOST_LOG = 64 * 1024 * 1024
MOST_SUMMARY = 65_000
"""Characters; GitHub refuses more than 65,535."""


class Checks:
    """Checks and statuses of one repository's commits."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def of(self, commit: str) -> tuple[CheckFacts, ...]:
        """Every check run and commit status of a commit, the newest of each name."""
        found: dict[tuple[str, str], wire.CheckRun] = {}
        for item in await self._listed(commit, {"filter": "latest"}):
            found.setdefault((item.app.slug or "" if item.app else "", item.name), item)
        checks = [await self._facts(item, source) for (source, _), item in found.items()]
        combined = await self._door.read(wire.CombinedStatus, GET_COMBINED_STATUS, commit)
        checks += [
            CheckFacts(
                name=status.context,
                source="status",
                conclusion=status.state,
                summary=status.description or "",
                url=status.target_url or "",
            )
            for status in combined.statuses
        ]
        return tuple(checks)

    async def failed(self, commit: str) -> tuple[CheckFacts, ...]:
        """The check runs of a commit that ended badly, without their logs; none while any is still going."""
        found = await self._listed(commit, {"filter": "latest"})
        if any(item.conclusion is None for item in found):
            return ()
        bad = (item for item in found if item.conclusion in FAILED)
        return tuple([await self._facts(item, "", log=False) for item in bad])

    async def ensure(self, wanted: CheckRun) -> str:
        """Write our check run, or bring it up to date; returns its address."""
        body = {
            "name": wanted.name,
            "external_id": wanted.key,
            "status": "completed" if wanted.conclusion else "in_progress",
            "output": {"title": wanted.title[:255], "summary": wanted.summary[:MOST_SUMMARY]},
        }
        if wanted.conclusion:
            body["conclusion"] = wanted.conclusion
        there = await self._own(wanted)
        if there is None:
            body["head_sha"] = wanted.commit
            try:
                made = await self._door.change(wire.CheckRun, CREATE_CHECK_RUN, body=body)
            except TryAgain:
                if (there := await self._own(wanted)) is None:
                    raise
                return there.html_url or ""
            return made.html_url or ""
        if not _says(there, wanted):
            there = await self._door.change(wire.CheckRun, UPDATE_CHECK_RUN, there.id, body=body)
        return there.html_url or ""

    async def _own(self, wanted: CheckRun) -> wire.CheckRun | None:
        params = {"check_name": wanted.name, "filter": "all"}
        if app := self._door.app.app_id:
            params["app_id"] = str(app)
        found = await self._listed(wanted.commit, params)
        return next((item for item in found if item.external_id == wanted.key), None)

    async def _listed(self, commit: str, params: dict[str, str]) -> list[wire.CheckRun]:
        query: dict[str, str | int] = {**params, "per_page": 100}
        return (await self._door.read(wire.CheckRuns, LIST_CHECK_RUNS, commit, params=query)).check_runs

    async def _facts(self, item: wire.CheckRun, source: str, *, log: bool = True) -> CheckFacts:
        failed = log and item.conclusion in FAILED
        summary = "\n".join(part for part in (item.output.title, item.output.summary, item.output.text) if part)
        return CheckFacts(
            id=item.id,
            app=item.app.id if item.app else None,
            name=item.name,
            source=source,
            conclusion=item.conclusion or item.status,
            summary=summary,
            url=item.html_url or "",
            log=await self._log(item) if failed else "",
        )

    async def _log(self, item: wire.CheckRun) -> str:
        """The end of a workflow job's log, whose number is the check's; elsewhere what the check pointed at."""
        if item.app is not None and item.app.slug == "github-actions":
            address = await self._door.location(GET_JOB_LOG, item.id)
            if address is not None:
                return await self._download(address)
        notes = await self._door.pages(wire.Annotation, LIST_ANNOTATIONS, item.id)
        return "\n".join(f"{note.path}:{note.start_line}: {note.message or ''}" for note in notes)[-LOG_END:]

    async def _download(self, address: str) -> str:
        """The end of what is there, asked for without our token: logs lie at another host."""
        kept, seen = b"", 0
        try:
            async with (
                httpx.AsyncClient(transport=self._door.app.lent, timeout=30.0) as client,
                client.stream("GET", address) as response,
            ):
                if not response.is_success:
                    return ""
                async for chunk in response.aiter_bytes():
                    kept, seen = (kept + chunk)[-LOG_END:], seen + len(chunk)
                    if seen > MOST_LOG:
                        break
        except (httpx.HTTPError, httpx.InvalidURL):
            return ""
        return kept.decode("utf-8", "replace")


def _says(there: wire.CheckRun, wanted: CheckRun) -> bool:
    written = (there.output.title, there.output.summary, there.conclusion)
    return written == (wanted.title[:255], wanted.summary[:MOST_SUMMARY], wanted.conclusion)
