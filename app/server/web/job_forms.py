"""The forms of a job's page: stop, retry, approve, edit the plan, answer, and continue with more money."""

import asyncio
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.core.plan import (
    COMMANDS,
    FIELDS,
    LIST_FIELDS,
    Plan,
    PlanError,
    parse_plan_file,
    plan_from_fields,
    render_plan_file,
)
from app.jobs.audit import AuditLog
from app.jobs.job_actions import JobActions, UnknownJob, WrongState
from app.server.web import formatting
from app.server.web.access import visitor_of
from app.server.web.api_models import micro
from app.server.web.form_fields import form_fields
from app.server.web.password import client_of
from app.server.web.visitors import Visitor

STOPPED_HERE: Final = "Stopped on the dashboard by {who}."
ACTIONS: Final = ("stop", "retry", "plan", "approve", "answer", "continue")
_AMOUNT = re.compile(r"[0-9]{1,5}(?:\.[0-9]{1,2})?")


class WrongForm(Exception):  # noqa: N818  # an answer
    """A field has a value that cannot be used."""


class JobForms:
    """Carries a form out once, however often it is sent; `message` makes a page of a status, a title and a text."""

    def __init__(self, actions: JobActions, audit: AuditLog, message: Callable[[int, str, str], Response]) -> None:
        self._actions = actions
        self._audit = audit
        self._message = message

    async def act(self, request: Request) -> Response:
        """The seal proves that the form and its id came from our page."""
        job, action = request.path_params["job"], request.url.path.rpartition("/")[2]
        found = await form_fields(request)
        form = {name: values[0] for name, values in found.items()}
        visitor = visitor_of(request)
        if not visitor.sealed(f"{job} {form.get('id', '')}", form.get("seal", "")):
            return self._message(403, "This form has expired", "Reload the job's page and try again.")
        try:
            edited = _edited_plan(found) if action in {"plan", "approve"} else None
            target = await asyncio.to_thread(self._carry_out, job, action, form, edited, visitor)
        except (UnknownJob, WrongState, WrongForm, PlanError) as error:
            return self._refused(error)
        extra = form.get("extra", "").strip() if action == "continue" else ""
        detail = f"as {target}" if target != job else extra
        record = partial(self._audit.record, detail=detail, address=client_of(request))
        await asyncio.to_thread(record, visitor.name, "dashboard", action, job)
        return RedirectResponse(f"/jobs/{formatting.path_of(target)}", 303)

    def _refused(self, error: UnknownJob | WrongState | WrongForm | PlanError) -> Response:
        match error:
            case UnknownJob():
                hint = "Check the job's id. The job may also be in another database."
                return self._message(404, "Page not found", hint)
            case WrongState():
                return self._message(409, "This cannot be done now", str(error))
            case PlanError():
                return self._message(422, "The plan cannot be used", f"{error.message} {error.hint}")
            case _:
                return self._message(422, "This cannot be used", str(error))

    def _carry_out(self, job: str, action: str, form: dict[str, str], edited: Plan | None, visitor: Visitor) -> str:
        """Returns the id of the job whose page is shown next."""
        new, who, user = form["id"], visitor.name, visitor.asks_as
        match action:
            case "stop":
                self._actions.cancel(job, STOPPED_HERE.format(who=who))
            case "retry":
                self._actions.retry(job, id=new, who=who, user=user)
                return new
            case "plan":
                self._edit(job, form, edited, who)
            case "approve":
                version = self._edit(job, form, edited, who)
                return self._actions.approve(job, id=new, who=who, user=user, version=version)
            case "answer":
                if not (text := form.get("text", "").strip()):
                    raise WrongForm("The answer is empty.")
                self._actions.answer(job, text, id=new, who=who)
            case "continue":
                amount = form.get("extra", "").strip()
                if amount and not _AMOUNT.fullmatch(amount):
                    raise WrongForm("Enter an amount in dollars, such as 3 or 2.50.")
                self._actions.proceed(job, id=new, who=who, extra=micro(amount) if amount else None)
            case _:
                raise UnknownJob(job)
        return job

    def _edit(self, job: str, form: dict[str, str], plan: Plan | None, who: str) -> int | None:
        """Store the form's plan if it was changed; returns the version that the form is about."""
        known, version = self._actions.plans.of(job), form.get("version", "")
        if not version.isdecimal() or len(version) > 6 or plan is None:
            return None
        shown = next((each for each in known if each.version == int(version)), None)
        if shown is not None and plan in (shown.plan, parse_plan_file(render_plan_file(shown.plan))):
            return int(version)
        return self._actions.edit_plan(job, int(version), plan, who=who).version


def _edited_plan(form: Mapping[str, list[str]]) -> Plan | None:
    """The plan that a form has, as text or in fields; None without one. Raises PlanError."""
    if "text" in form:
        return parse_plan_file(form["text"][0])
    if "summary" not in form:
        return None
    given = {name: [text.replace("\r\n", "\n").strip() for text in form.get(name, [])] for name in FIELDS}
    texts = {name: given[name][0] if given[name] else "" for name in ("summary", *COMMANDS)}
    return plan_from_fields({**texts, **{name: [text for text in given[name] if text] for name in LIST_FIELDS}})
