"""Streams a growing job log as server-sent events."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from app.core.job import FINAL
from app.jobs.queries import JobOverview
from app.jobs.store import ProgressRow
from app.server.web import formatting
from app.server.web.access import visitor_of
from app.server.web.api_models import problem

MAX_FOLLOWERS = 200
MAX_OF_ONE = 10
"""Streams of one person or key. The password's holder, who is the operator, may open all."""
LOOK_SECONDS = 1.0
MAX_LOOKS = 300
"""Streams end after five minutes; the browser reconnects at its position."""
LOOKS_PER_CHECK = 5
"""How often a stream looks for news before it checks again that its reader may see the job."""
MayRead = Callable[[], Awaitable[bool]]


class LogStreams:
    """Sends lines, then states; `Last-Event-ID` or `offset` say where to continue."""

    def __init__(
        self, overview: JobOverview, *, ending: Callable[[], bool] = lambda: False, pause: float = LOOK_SECONDS
    ):
        self._overview = overview
        self._ending = ending
        self._pause = pause
        self._followers = Counter[str]()
        """Open streams by whose they are; under no name the password's."""

    async def events(self, request: Request, may_read: MayRead) -> Response:
        """For the dashboard: whole lines only."""
        offset = request.headers.get("last-event-id") or request.query_params.get("offset", "0")
        if not (offset.isascii() and offset.isdigit() and len(offset) < 10):
            return problem(422, "offset must be a line's number")
        visitor = visitor_of(request)
        who = f"user {visitor.user}" if visitor.user else ""
        return await self.answer(request.path_params["job"], int(offset), may_read, who=who)

    async def answer(self, job: str, offset: int, may_read: MayRead, *, who: str, streamed: bool = False) -> Response:
        """The stream for `who`, empty for the password's holder; with `streamed`, also of what the model writes.

        It ends once `may_read` is false.
        """
        if await asyncio.to_thread(self._overview.one, job) is None:
            return problem(404, "There is no such job.")
        if self._followers.total() >= MAX_FOLLOWERS or (who and self._followers[who] >= MAX_OF_ONE):
            return problem(503, "Too many streams are open.", headers={"retry-after": "30"})
        headers = {"x-accel-buffering": "no"}
        return StreamingResponse(
            self._follow(job, offset, may_read, who, streamed=streamed), media_type="text/event-stream", headers=headers
        )

    async def _follow(self, job: str, after: int, may_read: MayRead, who: str, *, streamed: bool) -> AsyncIterator[str]:
        self._followers[who] += 1
        last_state = ""
        try:
            for look in range(MAX_LOOKS):
                if look % LOOKS_PER_CHECK == LOOKS_PER_CHECK - 1 and not await may_read():
                    return
                # The state is read before the log, so that no line written before the job's end is missed.
                listed = await asyncio.to_thread(self._overview.one, job)
                for line in await asyncio.to_thread(self._overview.log, job, after, streamed=streamed):
                    after = line.seq
                    yield _line(line)
                if listed is None or self._ending():
                    return
                name, group = formatting.job_state(listed), formatting.group_of(listed.state)
                state = {"state": listed.state, "name": name, "group": group}
                if (new_state := json.dumps(state)) != last_state:
                    last_state = new_state
                    yield f"event: state\ndata: {new_state}\n\n"
                if listed.state in FINAL:
                    yield "event: end\ndata: {}\n\n"
                    return
                await asyncio.sleep(self._pause)
                yield ": still here\n\n"
        finally:
            self._followers[who] -= 1
            self._followers += Counter()  # forgets whoever has none left


def _line(line: ProgressRow) -> str:
    entry = {"at": formatting.clock(line.at), "kind": line.kind, "text": formatting.block(line.text)}
    return f"id: {line.seq}\nevent: line\ndata: {json.dumps(entry)}\n\n"
