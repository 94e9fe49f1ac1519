"""Checks of a commit: who made a check run, the logs of jobs, annotations as a list, and commit statuses."""

from datetime import UTC, datetime
from typing import Any

from starlette.responses import PlainTextResponse, Response

from tests.support.emulate.corrections import corrected
from tests.support.emulate.front import IN_REPO, Answer, Ask, answers
from tests.support.emulate.memory import ACTIONS, Check
from tests.support.github.authentication import AccessDenied

_WORST = ("failure", "error", "pending", "success")


@answers("POST", IN_REPO + "/check-runs")
async def create(ask: Ask) -> Answer:
    """What a person's token makes is taken for a workflow's: on GitHub a person can make none."""
    status, made = await ask.passed_on()
    ours = ask.token is not None and ask.token.permissions is not None
    ask.within.checks[made["id"]] = Check(ask.front.memory.app if ours else ACTIONS)
    return status, made


@answers("GET", IN_REPO + "/commits/{ref}/check-runs")
async def listed(ask: Ask) -> Answer:
    """The newest of each App and name, or all; emulate does not know one App from another."""
    query = dict(ask.request.query_params)
    app, latest = query.pop("app_id", ""), query.pop("filter", "latest") == "latest"
    _, whole = await ask.passed_on(params={**query, "filter": "all"})
    runs: list[dict[str, Any]] = corrected(whole["check_runs"], ask.front.memory, ask.within)
    kept = [run for run in runs if not app or str(run["app"]["id"]) == app]
    if latest:
        newest = {(run["app"]["id"], run["name"]): run for run in sorted(kept, key=lambda run: run["id"])}
        kept = sorted(newest.values(), key=lambda run: -run["id"])
    return 200, {"total_count": len(kept), "check_runs": kept}


@answers("GET", IN_REPO + "/check-runs/{id:int}/annotations")
async def annotations(ask: Ask) -> Answer:
    _, whole = await ask.passed_on()
    return 200, whole["check_annotations"]


@answers("GET", IN_REPO + "/actions/jobs/{id:int}/logs")
async def job_log(ask: Ask) -> Answer:
    """A job has its check run's number; its log lies at another place, which takes no token."""
    ask.needs("actions")
    if ask.params["id"] not in ask.within.checks:
        raise AccessDenied(404, "Not Found")
    address = f"{ask.front.site}/_logs/{ask.within.full_name}/{ask.params['id']}"
    return Response(status_code=302, headers={"location": address})


@answers("GET", "/_logs/{owner}/{name}/{id:int}")
async def log(ask: Ask) -> Answer:
    if ask.authorization:
        raise AccessDenied(400, "A token was sent to the host of the logs")
    repo = ask.front.memory.repos[f"{ask.params['owner']}/{ask.params['name']}"]
    return PlainTextResponse(repo.checks[ask.params["id"]].log)


@answers("POST", IN_REPO + "/statuses/{sha}")
async def set_status(ask: Ask) -> Answer:
    ask.needs("statuses", "write")
    made = {
        "id": ask.front.memory.number(),
        "sha": ask.params["sha"],
        "context": ask.body.get("context", "default"),
        "state": ask.body["state"],
        "description": ask.body.get("description"),
        "target_url": ask.body.get("target_url"),
        "created_at": datetime.now(UTC).isoformat(),
    }
    ask.within.statuses.append(made)
    return 201, made


@answers("GET", IN_REPO + "/commits/{ref}/status")
async def combined(ask: Ask) -> Answer:
    ask.needs("statuses")
    commit = await ask.front.look(f"{ask.within.api}/commits/{ask.params['ref']}")
    mine = [status for status in ask.within.statuses if status["sha"] == commit["sha"]]
    newest = {status["context"]: status for status in mine}
    states = {status["state"] for status in newest.values()}
    worst = next((state for state in _WORST if state in states), "pending")
    return 200, {
        "state": worst,
        "sha": commit["sha"],
        "total_count": len(newest),
        "statuses": list(newest.values()),
    }
