"""A repository's settings as far as who is no administrator may see them: rules, labels, what workflows may do."""

import re
from collections.abc import Callable
from typing import Any, get_args

from githubkit_schemas.latest import models
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.github.calls import GET_ORGANISATION_WORKFLOW_PERMISSIONS
from tests.support.github.authentication import AccessDenied
from tests.support.github.server import Answer, Ask, FakeGitHub, rest
from tests.support.github.shapes import shaped
from tests.support.github.views import commit_view, label_view

NO_PLAN = "Upgrade to GitHub Pro or make this repository public to enable this feature."
"""github/branch-deploy#345: of rulesets and branch protection, in a private repository of a Free plan."""
RULES = {
    get_args(model.model_fields["type"].annotation)[0]: model
    for model in (getattr(models, f"RepositoryRuleDetailedOneof{number}") for number in range(25))
}
"""GitHub's models of rules by their types."""


@rest("GET", "/branches/{branch:path}")
def get_branch(ask: Ask) -> Answer:
    name = ask.params["branch"]
    tip = ask.repo.branches.get(name)
    if tip is None:
        raise AccessDenied(404, "Branch not found")
    ruled = any(re.fullmatch(rule["branches"], name) for rule in ask.repo.rules)
    view = shaped(models.BranchWithProtection, name=name, commit=commit_view(ask.repo, tip))
    return 200, {**view, "protected": ruled or (ask.repo.guarded and name == "main")}


@rest("GET", "/rules/branches/{branch:path}")
def get_rules(ask: Ask) -> Answer:
    """Also of a branch that is not there."""
    if ask.repo.private and not ask.repo.has_rules:
        raise AccessDenied(403, NO_PLAN)
    found = [rule for rule in ask.repo.rules if re.fullmatch(rule["branches"], ask.params["branch"])]
    return 200, [_rule_view(rule) for rule in found]


def _rule_view(rule: dict[str, Any]) -> dict[str, Any]:
    view = {name: value for name, value in rule.items() if name != "branches"}
    if view["type"] in RULES:  # one that GitHub has not published yet has no model
        TypeAdapter(RULES[view["type"]]).validate_python(view)
    return view


@rest("GET", "/rulesets/{number:int}")
def get_ruleset(ask: Ask) -> Answer:
    number = ask.params["number"]
    if number not in {rule["ruleset_id"] for rule in ask.repo.rules}:
        raise AccessDenied(404, "Not Found")
    bypass = ask.repo.bypasses.get(number, "never")
    values = {"id": number, "name": f"ruleset {number}", "source": ask.repo.full_name, "enforcement": "active"}
    return 200, shaped(models.RepositoryRuleset, **values, current_user_can_bypass=bypass)


@rest("GET", "/labels/{label}")
def get_label(ask: Ask) -> Answer:
    """By its name in any case, as GitHub finds labels."""
    wanted = ask.params["label"].casefold()
    found = next((name for name in ask.repo.labels if name.casefold() == wanted), None)
    if found is None:
        raise AccessDenied(404, "Not Found")
    return 200, label_view(found)


@rest("GET", "/actions/permissions/workflow")
def get_workflow_permissions(ask: Ask) -> Answer:
    return 200, _workflow_permissions(ask.repo.actions_open_pulls)


@rest("GET", "/actions/runs")
def get_runs(_ask: Ask) -> Answer:
    return 200, shaped(models.ReposOwnerRepoActionsRunsGetResponse200)


def organisation_route(github: Callable[[], FakeGitHub]) -> Route:
    """The same switch of an organisation, for its administrators."""

    async def endpoint(request: Request) -> Response:
        fake, name = github(), request.path_params["org"]
        try:
            fake.gate.use(request.headers.get("authorization", ""), GET_ORGANISATION_WORKFLOW_PERMISSIONS)
        except AccessDenied as refusal:
            return fake.refuse(refusal)
        return fake.answer(request, 200, _workflow_permissions(name in fake.world.organisations_open_pulls))

    return Route("/orgs/{org}/actions/permissions/workflow", endpoint)


def _workflow_permissions(open_pulls: bool) -> dict[str, Any]:
    values = {"default_workflow_permissions": "read", "can_approve_pull_request_reviews": open_pulls}
    return shaped(models.ActionsGetDefaultWorkflowPermissions, **values)
