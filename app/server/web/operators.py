"""The operators' pages: the queue, workers, dead letters and limits; and who did what."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.jobs.audit import AuditLog
from app.jobs.health import HealthMetrics
from app.jobs.operations import OperationsOverview
from app.server.web.access import visitor_of
from app.server.web.form_fields import single_fields
from app.server.web.password import client_of

AUDIT_SHOWN: Final = 100
SEAL: Final = "operators"


class OperatorPages:
    """Answers operators only (`app.server.web.access`)."""

    def __init__(
        self,
        operations: OperationsOverview,
        health: HealthMetrics,
        audit: AuditLog,
        render: Callable[..., Response],
    ) -> None:
        self._operations = operations
        self._health = health
        self._audit = audit
        self._render = render

    async def page(self, request: Request) -> Response:
        visitor = visitor_of(request)
        return self._render(
            "operators.html",
            visitor=visitor,
            seal=visitor.seal(SEAL),
            operations=await asyncio.to_thread(self._operations.now),
            figures=await asyncio.to_thread(self._health.figures),
        )

    async def audit(self, request: Request) -> Response:
        """Who did what, newest first; `before` is the number of the last entry on the page before."""
        given = request.query_params.get("before", "")
        before = int(given) if given.isascii() and given.isdigit() and len(given) < 16 else 0
        found = await asyncio.to_thread(self._audit.newest, AUDIT_SHOWN + 1, before)
        entries, more = found[:AUDIT_SHOWN], len(found) > AUDIT_SHOWN
        return self._render("audit.html", visitor=visitor_of(request), entries=entries, more=more, before=before)

    async def retry(self, request: Request) -> Response:
        """Give a dead letter another try."""
        visitor = visitor_of(request)
        form = await single_fields(request)
        kind, name, seal = (form.get(field, "") for field in ("kind", "id", "seal"))
        if not visitor.sealed(SEAL, seal):
            text = "Reload the page and try again."
            return self._render("message.html", 403, title="This form has expired", text=text, visitor=visitor)
        if not await asyncio.to_thread(self._operations.retry, kind, name):
            text = "It has already been retried or deleted."
            return self._render("message.html", 404, title="There is nothing to retry", text=text, visitor=visitor)
        record = partial(self._audit.record, detail=f"{kind} {name}", address=client_of(request))
        await asyncio.to_thread(record, visitor.name, "dashboard", "retry letter")
        return RedirectResponse("/operators#letters", 303)
