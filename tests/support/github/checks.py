"""Check runs, commit statuses, and the logs of workflow jobs behind a redirect."""

from typing import Any

from githubkit_schemas.latest import models
from starlette.responses import Response

from tests.support.github.authentication import APP_ID, AccessDenied
from tests.support.github.server import Answer, Ask, rest
from tests.support.github.shapes import shaped
from tests.support.github.views import check_view, status_view
from tests.support.github.world import Check


@rest("GET", "/commits/{sha}/check-runs")
def list_checks(ask: Ask) -> Answer:
    found = [check for check in ask.repo.checks if check.head_sha == ask.params["sha"]]
    if name := ask.query.get("check_name"):
        found = [check for check in found if check.name == name]
    if app := ask.query.get("app_id"):
        found = [check for check in found if check.app_id == int(app)]
    found.reverse()
    return 200, {"total_count": len(found), "check_runs": [check_view(check) for check in found]}


@rest("POST", "/check-runs")
def create_check(ask: Ask) -> Answer:
    slug = ask.world.bot.login.removesuffix("[bot]")
    check = Check(ask.world.number(), ask.body["name"], ask.body["head_sha"], slug, APP_ID)
    ask.repo.checks.append(check)
    _update(check, ask.body)
    return 201, check_view(check)


@rest("PATCH", "/check-runs/{id:int}")
def update_check(ask: Ask) -> Answer:
    check = _found(ask)
    if check.app_id != APP_ID:
        raise AccessDenied(403, "Resource not accessible by integration")
    _update(check, ask.body)
    return 200, check_view(check)


@rest("GET", "/check-runs/{id:int}/annotations")
def list_annotations(ask: Ask) -> Answer:
    return 200, [shaped(models.CheckAnnotation, **note) for note in _found(ask).annotations]


@rest("GET", "/commits/{sha}/status")
def combined_status(ask: Ask) -> Answer:
    return 200, status_view(ask.repo, ask.params["sha"])


@rest("GET", "/actions/jobs/{id:int}/logs")
def job_log(ask: Ask) -> Answer:
    return Response(status_code=302, headers={"location": f"{ask.world.logs}/{ask.repo.full_name}/{_found(ask).id}"})


def _found(ask: Ask) -> Check:
    check = next((check for check in ask.repo.checks if check.id == ask.params["id"]), None)
    if check is None:
        raise AccessDenied(404, "Not Found")
    return check


def _update(check: Check, body: dict[str, Any]) -> None:
    check.status = body.get("status", check.status)
    check.conclusion = body.get("conclusion", check.conclusion)
    check.external_id = body.get("external_id", check.external_id)
    output = body.get("output", {})
    check.title = output.get("title", check.title)
    check.summary = output.get("summary", check.summary)
