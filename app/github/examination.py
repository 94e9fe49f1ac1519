"""Asks GitHub whether agent-fix can work in a repository. It changes nothing; an App's last ping is sent once more."""

from collections.abc import Awaitable, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import httpx
from githubkit import GitHub

from app.config.repository import SOURCE, RepoConfig, parse_config
from app.core.errors import ConfigError
from app.github import api_models, findings
from app.github.app_manifest import EVENTS, PERMISSIONS
from app.github.app_registration import AppRegistration
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
from app.github.errors import ForgeError
from app.github.findings import Finding, OwnPush, Refused
from app.github.graphql import PlanFeaturesAnswer, Protection, ProtectionsAnswer
from app.github.http_client import HttpClient, parsed
from app.github.identity import find_bot_user
from app.github.repository_api import RepositoryApi

T = TypeVar("T")

KEPT: Final = timedelta(days=3)
"""How long GitHub keeps deliveries."""
LOOKS, PAUSE = 10, 2.0
"""How often, and after how many seconds, it is looked whether the ping has been sent."""
READS: Final = {
    "contents": GET_BRANCH,
    "issues": LIST_ISSUES,
    "pull_requests": LIST_PULLS,
    "checks": LIST_CHECK_RUNS,
    "statuses": GET_COMBINED_STATUS,
    "actions": LIST_RUNS,
}
"""A call that each permission opens."""


async def examine_app(app: AppConnection, owner: str, name: str, label: str) -> list[Finding]:
    """What there is to say of the App in this repository. A refusal at the door ends it early."""
    registration, place = AppRegistration(app), f"{owner}/{name}"
    identity = await _asked(registration.identity())
    if isinstance(identity, Refused):
        repair = "Are AGENT_FIX_APP_ID and AGENT_FIX_PRIVATE_KEY those of one App that still exists?"
        return [Finding("App", "not ok", identity.words, repair)]
    found = [Finding("App", "ok", f"{identity.slug}, number {identity.id}")]
    installation = await _asked(registration.installation_of(owner, name))
    if not isinstance(installation, api_models.InstallationResponse) or installation.suspended_at:
        return [*found, _not_installed(installation, place, identity.html_url)]
    found.append(Finding("installation", "ok", f"The App is installed in {place}."))
    hook = await _asked(registration.hook())
    found.append(findings.app_permissions(installation, PERMISSIONS))
    if isinstance(hook, api_models.HookConfig) and hook.url:
        found.append(findings.app_events(installation, EVENTS))
    found.append(await _webhook(app, hook))
    client = app.as_installation(installation.id, None, grant([Purpose.ACCOUNTS]))
    response = await _asked(_repository(app, client, installation.id, owner, name))
    if isinstance(response, Refused):
        return [*found, Finding("repository", "not ok", response.words, "Is it among the installation's repositories?")]
    repository = parsed(api_models.RepositoryResponse, response)
    api = RepositoryApi(app, installation.id, RepositoryId(repository.id, repository.owner.login, repository.name))
    return found + await _Examination(api, repository, installation.permissions, label).findings()


async def examine_token(bearer: TokenConnection, owner: str, name: str, label: str) -> list[Finding]:
    """The same for a token that was given to us."""
    api = RepositoryApi(bearer, GIVEN, RepositoryId(0, owner, name))
    response = await _asked(_repository(bearer, bearer.as_bearer(bearer.token), GIVEN, owner, name))
    if isinstance(response, Refused):
        repair = f"Is there a repository {owner}/{name}, and may the token read it?"
        return [Finding("token", "not ok", response.words, repair)]
    repository = parsed(api_models.RepositoryResponse, response)
    login = (await find_bot_user(api)).login
    scopes = response.headers.get("x-oauth-scopes")
    reads = {permission: await _refusal(api, call, repository) for permission, call in READS.items()}
    wanted = grant(BY_APP)
    found = [
        Finding("token", "ok", f"It is {login}'s."),
        findings.token_permissions(repository, login, scopes, reads, wanted),
    ]
    return found + await _Examination(api, repository, None, label).findings()


class _Examination:
    """What an App and a token ask alike. `held` are the App's permissions; a token's are not known."""

    def __init__(
        self, api: RepositoryApi, repository: api_models.RepositoryResponse, held: dict[str, str] | None, label: str
    ) -> None:
        self._api = api
        self._repository = repository
        self._held = held
        self._label = label
        self._names = {"owner": api.repository.owner, "name": api.repository.name}
        self._page = f"{api.app.host.server_url.rstrip('/')}/{self._names['owner']}/{self._names['name']}"

    async def findings(self) -> list[Finding]:
        main, us = self._repository.default_branch, await find_bot_user(self._api)
        config, line = await self._configuration()
        pushed = OwnPush(config.branch_for(slug="example", number=1), us.person.email)
        branch = await _asked(self._api.find(api_models.Branch, GET_BRANCH, main))
        enterprise = self._api.app.host.is_enterprise_server
        return [
            findings.repository_state(self._repository, "/".join(self._names.values())),
            line,
            findings.label(self._label, await self._has_label()),
            findings.drafts(await self._has_drafts()),
            await self._rulesets(pushed),
            await self._protections(pushed.branch),
            findings.default_branch(main, branch, await self._rules(main)),
            await self._actions(),
            findings.approval(us.login, enterprise_server=enterprise),
        ]

    async def _configuration(self) -> tuple[RepoConfig, Finding]:
        text = await _asked(self._api.content(GET_CONTENT, SOURCE))
        if isinstance(text, Refused):
            return RepoConfig(), findings.configuration(text, present=False)
        try:
            config = parse_config(text) if text else RepoConfig()
        except ConfigError as error:
            return RepoConfig(), findings.configuration(error.message, present=True)
        return config, findings.configuration("", present=text is not None)

    async def _has_label(self) -> bool | Refused:
        found = await _asked(self._api.find(api_models.LabelResponse, GET_LABEL, self._label))
        return found if isinstance(found, Refused) else found is not None

    async def _has_drafts(self) -> bool | Refused:
        if not self._repository.private:
            return True
        found = await _asked(self._api.graphql(PlanFeaturesAnswer, PLAN_FEATURES, self._names))
        return found if isinstance(found, Refused) else found.repository.plan_features.draft_pull_requests

    async def _rules(self, branch: str) -> Sequence[api_models.BranchRule] | Refused:
        return await _asked(self._api.pages(api_models.BranchRule, LIST_BRANCH_RULES, branch))

    async def _rulesets(self, pushed: OwnPush) -> Finding:
        rules = await self._rules(pushed.branch)
        numbers = set() if isinstance(rules, Refused) else {rule.ruleset_id for rule in rules}
        bypassed = {number for number in numbers if await self._is_bypassed(number)}
        return findings.branch_rules(pushed, rules, bypassed, f"{self._page}/rules")

    async def _is_bypassed(self, ruleset: int) -> bool:
        found = await _asked(self._api.read(api_models.Ruleset, GET_RULESET, ruleset))
        return isinstance(found, api_models.Ruleset) and found.current_user_can_bypass in {"always", "exempt"}

    async def _protections(self, branch: str) -> Finding:
        rules: Sequence[Protection] | Refused = Refused("")
        if self._may_see("administration"):
            found = await _asked(self._api.graphql(ProtectionsAnswer, BRANCH_PROTECTIONS, self._names))
            if isinstance(found, ProtectionsAnswer):
                rules = list(filter(None, found.repository.branch_protection_rules.nodes or ()))
            else:
                rules = found
        page, complete = f"{self._page}/settings/branches", self._repository.permissions.admin
        return findings.branch_protections(branch, rules, complete=complete or self._held is not None, page=page)

    async def _actions(self) -> Finding:
        repository: api_models.WorkflowPermissions | Refused = Refused("")
        if self._may_see("administration"):
            repository = await _asked(self._api.read(api_models.WorkflowPermissions, GET_WORKFLOW_PERMISSIONS))
        organisation: api_models.WorkflowPermissions | Refused | None = None
        if self._repository.owner.type == "Organization" and self._may_see("organization_administration"):
            call, owner = GET_ORGANISATION_WORKFLOW_PERMISSIONS, self._names["owner"]
            organisation = await _asked(self._api.read(api_models.WorkflowPermissions, call, owner))
        return findings.actions(repository, organisation)

    def _may_see(self, permission: str) -> bool:
        """A token is asked; of an App it is known, and asking for a token that it cannot have would only be refused."""
        return self._held is None or permission in self._held


async def _webhook(app: AppConnection, hook: api_models.HookConfig | Refused | None) -> Finding:
    if isinstance(hook, Refused):
        return Finding("webhook", "cannot tell", hook.words)
    if hook is None or not hook.url:
        return findings.webhook("", None, asked=False)
    try:
        delivery, asked = await _resent(app)
    except ForgeError as error:
        return Finding("webhook", "cannot tell", error.message)
    return findings.webhook(hook.url, delivery, asked=asked)


async def _resent(app: AppConnection) -> tuple[api_models.DeliveryResponse | None, bool]:
    """What became of the last ping, sent once more; without a ping the last delivery, and that it was not asked for."""
    registration = AppRegistration(app)
    before = await registration.deliveries(app.now() - KEPT)
    ping = next((delivery for delivery in before if delivery.event == "ping"), None)
    if ping is None:
        return before[0] if before else None, False
    await registration.redeliver(ping.id)
    known, found = {delivery.id for delivery in before}, None
    for _ in range(LOOKS):
        await app.sleep(PAUSE)
        now = await registration.deliveries(ping.delivered_at)
        found = next((each for each in now if each.guid == ping.guid and each.id not in known), None)
        if found is not None and found.status_code:
            break
    return found, True


async def _repository(
    connection: Connection, client: GitHub[Any], installation: int, owner: str, name: str
) -> httpx.Response:
    """By its name: its number is not known yet. The headers tell of the token."""
    line = HttpClient(connection, connection.pace(installation))
    return line.in_place(await line.with_retries(lambda: line.ask(client, GET_REPOSITORY, owner, name)))


def _not_installed(found: api_models.InstallationResponse | Refused | None, place: str, page: str) -> Finding:
    if isinstance(found, Refused):
        return Finding("installation", "cannot tell", found.words)
    if found is not None:
        return Finding("installation", "not ok", f"The App is suspended in {place}.", f"Unsuspend it: {found.html_url}")
    repair = f"Install it: {page}/installations/new"
    return Finding("installation", "not ok", f"The App is not installed in {place}, or there is no such place.", repair)


async def _refusal(api: RepositoryApi, call: Call, repository: api_models.RepositoryResponse) -> Refused | None:
    """What a reading call came to: nothing, or why not."""
    values = (repository.default_branch,) if "{" in call.path.partition("{repo}")[2] else ()
    params = {"per_page": 1} if not values else None
    answer = await _asked(api.read(object, call, *values, params=params))
    return answer if isinstance(answer, Refused) else None


async def _asked(answer: Awaitable[T]) -> T | Refused:
    """An answer, or that there is none: no permission, no such thing, no GitHub."""
    try:
        return await answer
    except ForgeError as error:
        return Refused(error.message)
