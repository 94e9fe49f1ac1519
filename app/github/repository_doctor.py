"""Checks whether agent-fix can work in a GitHub repository. Changes nothing; sends an App's last ping again."""

from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import httpx
from githubkit import GitHub

from app.config.repository import SOURCE, RepoConfig, parse_config
from app.core.checks import Check
from app.core.errors import ConfigError
from app.github import doctor_lines, models
from app.github.app_manifest import EVENTS, PERMISSIONS
from app.github.auth import AppRegistration
from app.github.base import GIVEN
from app.github.calls import (
    BRANCH_PROTECTIONS,
    BY_APP,
    GET_BRANCH,
    GET_COMBINED_STATUS,
    GET_CONTENT,
    GET_LABEL,
    GET_ORGANISATION_WORKFLOW_PERMISSIONS,
    GET_REPOSITORY,
    GET_RULESET,
    GET_WORKFLOW_PERMISSIONS,
    LIST_BRANCH_RULES,
    LIST_CHECK_RUNS,
    LIST_ISSUES,
    LIST_PULLS,
    LIST_RUNS,
    PLAN_FEATURES,
    Call,
    Purpose,
    grant,
)
from app.github.connection import AppConnection, Connection, RepositoryId, TokenConnection
from app.github.doctor_lines import OwnPush, Refused
from app.github.errors import ForgeError
from app.github.graphql import PlanFeaturesAnswer, Protection, ProtectionsAnswer
from app.github.http_client import HttpClient, parsed
from app.github.repository_api import RepositoryApi, find_bot_account

T = TypeVar("T")

KEPT: Final = timedelta(days=3)
"""How long GitHub keeps deliveries."""
PING_LOOKS, PAUSE = 10, 2.0
"""How often to look for the result of the ping, and the seconds between."""
READS: Final = {
    "contents": GET_BRANCH,
    "issues": LIST_ISSUES,
    "pull_requests": LIST_PULLS,
    "checks": LIST_CHECK_RUNS,
    "statuses": GET_COMBINED_STATUS,
    "actions": LIST_RUNS,
}
"""A call that requires each permission."""


async def examine_app(app: AppConnection, owner: str, name: str, label: str) -> list[Check]:
    """The findings about the App in this repository; ends early if the App has no access."""
    registration, place = AppRegistration(app), f"{owner}/{name}"
    identity = await _answer_or_refusal(registration.identity())
    if isinstance(identity, Refused):
        repair = (
            "Check that AGENT_FIX_APP_ID and AGENT_FIX_PRIVATE_KEY belong to the same App and that it still exists."
        )
        return [Check("App", "not ok", identity.words, repair)]
    found = [Check("App", "ok", f"{identity.slug}, number {identity.id}")]
    installation = await _answer_or_refusal(registration.installation_of(owner, name))
    if not isinstance(installation, models.InstallationResponse) or installation.suspended_at:
        return [*found, _not_installed(installation, place, identity.html_url)]
    found.append(Check("installation", "ok", f"The App is installed in {place}."))
    hook = await _answer_or_refusal(registration.hook())
    found.append(doctor_lines.app_permissions(installation, PERMISSIONS))
    if isinstance(hook, models.HookConfig) and hook.url:
        found.append(doctor_lines.app_events(installation, EVENTS))
    found.append(await _webhook(app, hook))
    client = app.as_installation(installation.id, None, grant([Purpose.ACCOUNTS]))
    response = await _answer_or_refusal(_repository(app, client, installation.id, owner, name))
    if isinstance(response, Refused):
        return [
            *found,
            Check("repository", "not ok", response.words, "Check that it is among the installation's repositories."),
        ]
    repository = parsed(models.Repository, response)
    api = RepositoryApi(app, installation.id, RepositoryId(repository.id, repository.owner, repository.name))
    return found + await _RepositoryDoctor(api, repository, installation.permissions, label).lines()


async def examine_token(connection: TokenConnection, owner: str, name: str, label: str) -> list[Check]:
    """The findings about a given token."""
    api = RepositoryApi(connection, GIVEN, RepositoryId(0, owner, name))
    response = await _answer_or_refusal(
        _repository(connection, connection.with_token(connection.token), GIVEN, owner, name)
    )
    if isinstance(response, Refused):
        repair = f"Check that the repository {owner}/{name} exists and that the token may read it."
        return [Check("token", "not ok", response.words, repair)]
    repository = parsed(models.Repository, response)
    login = (await find_bot_account(api)).login
    scopes = response.headers.get("x-oauth-scopes")
    reads = {permission: await _refusal(api, call, repository) for permission, call in READS.items()}
    wanted = grant(BY_APP)
    found = [
        Check("token", "ok", f"It is {login}'s."),
        doctor_lines.token_permissions(repository, login, scopes, reads, wanted),
    ]
    return found + await _RepositoryDoctor(api, repository, None, label).lines()


class _RepositoryDoctor:
    """The checks that an App and a token share. `held` are the App's permissions; None for a token."""

    def __init__(
        self, api: RepositoryApi, repository: models.Repository, held: dict[str, str] | None, label: str
    ) -> None:
        self._api = api
        self._repository = repository
        self._held = held
        self._label = label
        self._names = {"owner": api.repository.owner, "name": api.repository.name}
        self._page = f"{api.app.host.server_url.rstrip('/')}/{self._names['owner']}/{self._names['name']}"

    async def lines(self) -> list[Check]:
        main, us = self._repository.default_branch, await find_bot_account(self._api)
        config, http = await self._configuration()
        pushed = OwnPush(config.branch_for(slug="example", number=1), us.person.email)
        branch = await _answer_or_refusal(self._api.find(models.Branch, GET_BRANCH, main))
        enterprise = self._api.app.host.is_enterprise_server
        return [
            doctor_lines.repository_state(self._repository, "/".join(self._names.values())),
            http,
            doctor_lines.label(self._label, await self._has_label()),
            doctor_lines.drafts(await self._has_drafts()),
            await self._rulesets(pushed),
            await self._protections(pushed.branch),
            doctor_lines.default_branch(main, branch, await self._rules(main)),
            await self._actions(),
            doctor_lines.approval(us.login, enterprise_server=enterprise),
        ]

    async def _configuration(self) -> tuple[RepoConfig, Check]:
        text = await _answer_or_refusal(self._api.content(GET_CONTENT, SOURCE))
        if isinstance(text, Refused):
            return RepoConfig(), doctor_lines.configuration(text, present=False)
        try:
            config = parse_config(text) if text else RepoConfig()
        except ConfigError as error:
            return RepoConfig(), doctor_lines.configuration(error.message, present=True)
        return config, doctor_lines.configuration("", present=text is not None)

    async def _has_label(self) -> bool | Refused:
        found = await _answer_or_refusal(self._api.find(models.LabelResponse, GET_LABEL, self._label))
        return found if isinstance(found, Refused) else found is not None

    async def _has_drafts(self) -> bool | Refused:
        if not self._repository.private:
            return True
        found = await _answer_or_refusal(self._api.graphql(PlanFeaturesAnswer, PLAN_FEATURES, self._names))
        return found if isinstance(found, Refused) else found.draft_pull_requests

    async def _rules(self, branch: str) -> Sequence[models.BranchRule] | Refused:
        return await _answer_or_refusal(self._api.pages(models.BranchRule, LIST_BRANCH_RULES, branch))

    async def _rulesets(self, pushed: OwnPush) -> Check:
        rules = await self._rules(pushed.branch)
        numbers = set() if isinstance(rules, Refused) else {rule.ruleset_id for rule in rules}
        bypassed = {number for number in numbers if await self._is_bypassed(number)}
        return doctor_lines.branch_rules(pushed, rules, bypassed, f"{self._page}/rules")

    async def _is_bypassed(self, ruleset: int) -> bool:
        found = await _answer_or_refusal(self._api.read(models.Ruleset, GET_RULESET, ruleset))
        return isinstance(found, models.Ruleset) and found.current_user_can_bypass in {"always", "exempt"}

    async def _protections(self, branch: str) -> Check:
        rules: Sequence[Protection] | Refused = Refused("")
        if self._may_see("administration"):
            found = await _answer_or_refusal(self._api.graphql(ProtectionsAnswer, BRANCH_PROTECTIONS, self._names))
            rules = list(filter(None, found.rules or ())) if isinstance(found, ProtectionsAnswer) else found
        page, complete = f"{self._page}/settings/branches", self._repository.permissions.admin
        return doctor_lines.branch_protections(branch, rules, complete=complete or self._held is not None, page=page)

    async def _actions(self) -> Check:
        repository: models.WorkflowPermissions | Refused = Refused("")
        if self._may_see("administration"):
            repository = await _answer_or_refusal(self._api.read(models.WorkflowPermissions, GET_WORKFLOW_PERMISSIONS))
        organisation: models.WorkflowPermissions | Refused | None = None
        if self._repository.owner_kind == "Organization" and self._may_see("organization_administration"):
            call, owner = GET_ORGANISATION_WORKFLOW_PERMISSIONS, self._names["owner"]
            organisation = await _answer_or_refusal(self._api.read(models.WorkflowPermissions, call, owner))
        return doctor_lines.actions(repository, organisation)

    def _may_see(self, permission: str) -> bool:
        """True if settings may be read. A token's permissions are unknown, so the request is tried."""
        return self._held is None or permission in self._held


async def _webhook(app: AppConnection, hook: models.HookConfig | Refused | None) -> Check:
    if isinstance(hook, Refused):
        return Check("webhook", "cannot tell", hook.words)
    if hook is None or not hook.url:
        return doctor_lines.webhook("", None, resent=False)
    try:
        delivery, resent = await _resent(app)
    except ForgeError as error:
        return Check("webhook", "cannot tell", error.message)
    return doctor_lines.webhook(hook.url, delivery, resent=resent)


async def _resent(app: AppConnection) -> tuple[models.DeliveryResponse | None, bool]:
    """The result of sending the last ping again, and True; without a ping, the last delivery and False."""
    registration = AppRegistration(app)
    before = await registration.deliveries(app.now() - KEPT)
    ping = next((delivery for delivery in before if delivery.event == "ping"), None)
    if ping is None:
        return before[0] if before else None, False
    await registration.redeliver(ping.id)
    known, found = {delivery.id for delivery in before}, None
    for _ in range(PING_LOOKS):
        await app.sleep(PAUSE)
        now = await registration.deliveries(ping.delivered_at)
        found = next((each for each in now if each.guid == ping.guid and each.id not in known), None)
        if found is not None and found.status_code:
            break
    return found, True


async def _repository(
    connection: Connection, client: GitHub[Any], installation: int, owner: str, name: str
) -> httpx.Response:
    """By name, because its id is not known yet. The headers show the token's scopes."""
    http = HttpClient(connection, connection.pace(installation))
    return http.reject_redirect(await http.with_retries(lambda: http.request(client, GET_REPOSITORY, owner, name)))


def _not_installed(found: models.InstallationResponse | Refused | None, place: str, page: str) -> Check:
    if isinstance(found, Refused):
        return Check("installation", "cannot tell", found.words)
    if found is not None:
        return Check("installation", "not ok", f"The App is suspended in {place}.", f"Unsuspend it: {found.html_url}")
    repair = f"Install it: {page}/installations/new"
    return Check(
        "installation", "not ok", f"The App is not installed in {place}, or there is no such repository.", repair
    )


async def _refusal(api: RepositoryApi, call: Call, repository: models.Repository) -> Refused | None:
    """Why a read call is refused; None if it succeeds."""
    values = (repository.default_branch,) if "{" in call.path.partition("{repo}")[2] else ()
    params = {"per_page": 1} if not values else None
    answer = await _answer_or_refusal(api.read(object, call, *values, params=params))
    return answer if isinstance(answer, Refused) else None


async def _answer_or_refusal(answer: Awaitable[T]) -> T | Refused:
    """The answer, or Refused for any ForgeError."""
    try:
        return await answer
    except ForgeError as error:
        return Refused(error.message)
