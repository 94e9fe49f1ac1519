"""Checks whether agent-fix can work in a GitHub repository. Changes nothing; sends an App's last ping again."""

import re
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, NamedTuple, TypeVar

import httpx
from githubkit import GitHub

from app.config.repository import SOURCE, RepoConfig, parse_config
from app.core.checks import Check
from app.core.errors import ConfigError
from app.github import calls, models
from app.github.auth import EVENTS, PERMISSIONS, AppRegistration
from app.github.base import GIVEN, ForgeError
from app.github.calls import Call, Purpose, grant
from app.github.connection import AppConnection, Connection, Grant, RepositoryId, TokenConnection
from app.github.http_client import HttpClient, parsed
from app.github.models import PlanFeaturesAnswer, Protection, ProtectionsAnswer
from app.github.repository_api import RepositoryApi, find_bot_account

T = TypeVar("T")

KEPT: Final = timedelta(days=3)
"""How long GitHub keeps deliveries."""
PING_LOOKS, PAUSE = 10, 2.0
"""How often to look for the result of the ping, and the seconds between."""
READS: Final = {
    "contents": calls.GET_BRANCH,
    "issues": calls.LIST_ISSUES,
    "pull_requests": calls.LIST_PULLS,
    "checks": calls.LIST_CHECK_RUNS,
    "statuses": calls.GET_COMBINED_STATUS,
    "actions": calls.LIST_RUNS,
}
"""A call that requires each permission."""
BLOCKING_RULES: Final = {
    "creation": "nobody may create this branch",
    "update": "nobody may push to this branch",
    "required_signatures": f"commits must be signed; `sign: true` in {SOURCE} lets GitHub sign them for an App, or the "
    "operator sets AGENT_FIX_SIGNING_KEY",
    "pull_request": "changes need a pull request, so a pull request's own branch cannot be pushed",
    "required_status_checks": "checks must pass before a push",
    "required_deployments": "deployments must succeed before a push",
    "workflows": "workflows must pass before a push",
    "code_scanning": "code scanning must pass before a push",
    "code_quality": "code quality must pass before a push",
    "code_coverage": "code coverage must pass before a push",
    "license_compliance_scanning": "the licence scan must pass before a push",
    "merge_queue": "changes must go through the merge queue",
}
LIMITING_RULES: Final = {
    "required_linear_history": "`/agent rebase` cannot push its merge",
    "non_fast_forward": "a draft opened early (`pull_request: early`) cannot be replaced",
    "deletion": "the branch of an early draft without a change is not deleted",
}
RULES_ABOUT_FILES: Final = frozenset(
    {"file_path_restriction", "max_file_path_length", "file_extension_restriction", "max_file_size"}
)
HARMLESS_RULES: Final = frozenset({"copilot_code_review", "tag_name_pattern"})
OPEN_PULL_REQUESTS: Final = "Workflow permissions: “Allow GitHub Actions to create and approve pull requests”"


class Refused(NamedTuple):
    """A question that GitHub did not answer, and its message."""

    message: str

    @property
    def is_about_the_plan(self) -> bool:
        """True for "Upgrade to GitHub …": a Free plan's private repositories have no rulesets or protected branches."""
        return "upgrade to github" in self.message.lower()


class OwnPush(NamedTuple):
    """What agent-fix would push: the branch, and its commits' email address."""

    branch: str
    email: str
    signed: bool = False
    signed_off: bool = False


async def examine_app(app: AppConnection, owner: str, name: str, label: str, *, signs: bool = False) -> list[Check]:
    """The findings about the App in this repository; ends early if the App has no access."""
    registration, place = AppRegistration(app), f"{owner}/{name}"
    identity = await _answer_or_refusal(registration.identity())
    if isinstance(identity, Refused):
        repair = (
            "Check that AGENT_FIX_APP_ID and AGENT_FIX_PRIVATE_KEY belong to the same App and that it still exists."
        )
        return [Check("App", "not ok", identity.message, repair)]
    found = [Check("App", "ok", f"{identity.slug}, number {identity.id}")]
    installation = await _answer_or_refusal(registration.installation_of(owner, name))
    if not isinstance(installation, models.InstallationResponse) or installation.suspended_at:
        return [*found, _not_installed(installation, place, identity.html_url)]
    found.append(Check("installation", "ok", f"The App is installed in {place}."))
    hook = await _answer_or_refusal(registration.hook())
    found.append(check_app_permissions(installation, PERMISSIONS))
    if isinstance(hook, models.HookConfig) and hook.url:
        found.append(check_app_events(installation, EVENTS))
    found.append(await _webhook(app, hook))
    client = app.as_installation(installation.id, None, grant([Purpose.ACCOUNTS]))
    response = await _answer_or_refusal(_repository(app, client, installation.id, owner, name))
    if isinstance(response, Refused):
        return [
            *found,
            Check("repository", "not ok", response.message, "Check that it is among the installation's repositories."),
        ]
    repository = parsed(models.Repository, response)
    api = RepositoryApi(app, installation.id, RepositoryId(repository.id, repository.owner, repository.name))
    return found + await _RepositoryDoctor(api, repository, installation.permissions, label, signs=signs).lines()


async def examine_token(
    connection: TokenConnection, owner: str, name: str, label: str, *, signs: bool = False
) -> list[Check]:
    """The findings about a given token."""
    api = RepositoryApi(connection, GIVEN, RepositoryId(0, owner, name))
    response = await _answer_or_refusal(
        _repository(connection, connection.with_token(connection.token), GIVEN, owner, name)
    )
    if isinstance(response, Refused):
        repair = f"Check that the repository {owner}/{name} exists and that the token may read it."
        return [Check("token", "not ok", response.message, repair)]
    repository = parsed(models.Repository, response)
    login = (await find_bot_account(api)).login
    scopes = response.headers.get("x-oauth-scopes")
    reads = {permission: await _read_refusal(api, call, repository) for permission, call in READS.items()}
    wanted = grant(calls.BY_APP)
    found = [
        Check("token", "ok", f"It is {login}'s."),
        check_token_permissions(repository, login, scopes, reads, wanted),
    ]
    return found + await _RepositoryDoctor(api, repository, None, label, signs=signs).lines()


class _RepositoryDoctor:
    """The checks that an App and a token share. `held` are the App's permissions; None for a token.

    `signs` is True if the operator has a signing key."""

    def __init__(
        self, api: RepositoryApi, repository: models.Repository, held: dict[str, str] | None, label: str, *, signs: bool
    ) -> None:
        self._api = api
        self._repository = repository
        self._held = held
        self._label = label
        self._signs = signs
        self._page = f"{api.app.host.server_url.rstrip('/')}/{api.repository.owner}/{api.repository.name}"

    async def lines(self) -> list[Check]:
        main, us = self._repository.default_branch, await find_bot_account(self._api)
        config, check = await self._configuration()
        signed = config.sign or self._signs
        pushed = OwnPush(config.branch_for(slug="example", number=1), us.person.email, signed, config.signoff)
        branch = await _answer_or_refusal(self._api.find(models.Branch, calls.GET_BRANCH, main))
        enterprise = self._api.app.host.is_enterprise_server
        return [
            check_repository_state(self._repository, "/".join(self._api.names.values())),
            check,
            check_label(self._label, await self._has_label()),
            check_drafts(await self._has_drafts()),
            await self._rulesets(pushed),
            await self._protections(pushed),
            check_default_branch(main, branch, await self._rules(main)),
            await self._actions(),
            check_approval(us.login, enterprise_server=enterprise),
        ]

    async def _configuration(self) -> tuple[RepoConfig, Check]:
        text = await _answer_or_refusal(self._api.content(calls.GET_CONTENT, SOURCE))
        if isinstance(text, Refused):
            return RepoConfig(), check_configuration(text, present=False)
        try:
            config = parse_config(text) if text else RepoConfig()
        except ConfigError as error:
            return RepoConfig(), check_configuration(error.message, present=True)
        return config, check_configuration("", present=text is not None)

    async def _has_label(self) -> bool | Refused:
        found = await _answer_or_refusal(self._api.find(models.LabelResponse, calls.GET_LABEL, self._label))
        return found if isinstance(found, Refused) else found is not None

    async def _has_drafts(self) -> bool | Refused:
        if not self._repository.private:
            return True
        found = await _answer_or_refusal(self._api.graphql(PlanFeaturesAnswer, calls.PLAN_FEATURES, self._api.names))
        return found if isinstance(found, Refused) else found.draft_pull_requests

    async def _rules(self, branch: str) -> Sequence[models.BranchRule] | Refused:
        return await _answer_or_refusal(self._api.pages(models.BranchRule, calls.LIST_BRANCH_RULES, branch))

    async def _rulesets(self, pushed: OwnPush) -> Check:
        rules = await self._rules(pushed.branch)
        numbers = set() if isinstance(rules, Refused) else {rule.ruleset_id for rule in rules}
        bypassed = {number for number in numbers if await self._is_bypassed(number)}
        return check_branch_rules(pushed, rules, bypassed, f"{self._page}/rules")

    async def _is_bypassed(self, ruleset: int) -> bool:
        found = await _answer_or_refusal(self._api.read(models.Ruleset, calls.GET_RULESET, ruleset))
        return isinstance(found, models.Ruleset) and found.current_user_can_bypass in {"always", "exempt"}

    async def _protections(self, pushed: OwnPush) -> Check:
        rules: Sequence[Protection] | Refused = Refused("")
        if self._may_see("administration"):
            found = await _answer_or_refusal(
                self._api.graphql(ProtectionsAnswer, calls.BRANCH_PROTECTIONS, self._api.names)
            )
            rules = list(filter(None, found.rules or ())) if isinstance(found, ProtectionsAnswer) else found
        page, complete = f"{self._page}/settings/branches", self._repository.permissions.admin
        return check_branch_protections(pushed, rules, complete=complete or self._held is not None, page=page)

    async def _actions(self) -> Check:
        repository: models.WorkflowPermissions | Refused = Refused("")
        if self._may_see("administration"):
            repository = await _answer_or_refusal(
                self._api.read(models.WorkflowPermissions, calls.GET_WORKFLOW_PERMISSIONS)
            )
        organisation: models.WorkflowPermissions | Refused | None = None
        if self._repository.owner_kind == "Organization" and self._may_see("organization_administration"):
            call, owner = calls.GET_ORGANISATION_WORKFLOW_PERMISSIONS, self._api.repository.owner
            organisation = await _answer_or_refusal(self._api.read(models.WorkflowPermissions, call, owner))
        return check_actions(repository, organisation)

    def _may_see(self, permission: str) -> bool:
        """True if settings may be read. A token's permissions are unknown, so the request is tried."""
        return self._held is None or permission in self._held


async def _webhook(app: AppConnection, hook: models.HookConfig | Refused | None) -> Check:
    if isinstance(hook, Refused):
        return Check("webhook", "cannot tell", hook.message)
    if hook is None or not hook.url:
        return check_webhook("", None, resent=False)
    try:
        delivery, resent = await _resent(app)
    except ForgeError as error:
        return Check("webhook", "cannot tell", error.message)
    return check_webhook(hook.url, delivery, resent=resent)


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
    return await http.get(client, calls.GET_REPOSITORY, owner, name)


def _not_installed(found: models.InstallationResponse | Refused | None, place: str, page: str) -> Check:
    if isinstance(found, Refused):
        return Check("installation", "cannot tell", found.message)
    if found is not None:
        return Check("installation", "not ok", f"The App is suspended in {place}.", f"Unsuspend it: {found.html_url}")
    repair = f"Install it: {page}/installations/new"
    return Check(
        "installation", "not ok", f"The App is not installed in {place}, or there is no such repository.", repair
    )


async def _read_refusal(api: RepositoryApi, call: Call, repository: models.Repository) -> Refused | None:
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


def check_app_permissions(installation: models.InstallationResponse, wanted: Grant) -> Check:
    held = installation.permissions
    missing = [
        f"{_readable(name)}: {access} (it has {held.get(name, 'none')})"
        for name, access in sorted(wanted.items())
        if held.get(name) not in {access, "write", "admin"}
    ]
    if not missing:
        return Check("permissions", "ok", _listed(wanted))
    repair = f"Add them on the App's page under Permissions & events, then accept them: {installation.html_url}"
    return Check("permissions", "not ok", f"The App's installation lacks {'; '.join(missing)}.", repair)


def check_app_events(installation: models.InstallationResponse, wanted: Iterable[str]) -> Check:
    missing = sorted(set(wanted) - set(installation.events))
    if not missing:
        return Check("events", "ok", "The App receives all events it needs.")
    return Check(
        "events",
        "not ok",
        f"The App does not receive these webhooks: {', '.join(missing)}.",
        "Select them on the App's page under Permissions & events.",
    )


def check_token_permissions(
    repository: models.Repository,
    login: str,
    scopes: str | None,
    reads: Mapping[str, Refused | None],
    wanted: Grant,
) -> Check:
    """`scopes` are a classic token's, None for other tokens; `reads` has a refusal or None for each permission."""
    if not login.endswith("[bot]") and not repository.permissions.push:
        return Check(
            "permissions",
            "not ok",
            f"{login} may not push to this repository.",
            f"Give {login} the role Write, or use the token of an account that has it.",
        )
    if scopes is not None:
        return _scopes(repository, scopes)
    if unread := [_readable(name) for name, answer in reads.items() if answer is not None]:
        detail = f"The token may not read {', '.join(unread)}."
        return Check("permissions", "not ok", detail, f"Give it: {_listed(wanted)}.")
    return Check(
        "permissions",
        "cannot tell",
        "Reading works. Write permissions can only be seen by writing.",
        f"Compare its permissions with: {_listed(wanted)}.",
    )


def _scopes(repository: models.Repository, scopes: str) -> Check:
    held = {scope.strip() for scope in scopes.split(",")}
    if "repo" in held or ("public_repo" in held and not repository.private):
        return Check("permissions", "ok", f"The token's scopes are sufficient: {scopes}.")
    wanted = "repo" if repository.private else "public_repo"
    detail = f"The token's scopes are {scopes or 'none'}."
    return Check("permissions", "not ok", detail, f"It needs the scope {wanted}.")


def check_repository_state(repository: models.Repository, place: str) -> Check:
    visibility = "private" if repository.private else "public"
    if repository.archived:
        return Check("repository", "not ok", f"{place} is archived and cannot be changed.", "Unarchive it.")
    if not repository.has_issues:
        repair = "Turn them on under Settings, General, Features."
        return Check("repository", "not ok", f"Issues are turned off in {place}.", repair)
    return Check("repository", "ok", f"{place}, {visibility}, default branch {repository.default_branch}")


def check_drafts(available: bool | Refused) -> Check:
    otherwise = "agent-fix opens ordinary pull requests whose title begins with “Draft:”"
    if isinstance(available, Refused):
        return Check("drafts", "cannot tell", f"{available.message} {otherwise}.")
    if available:
        return Check("drafts", "ok", "This repository's plan has draft pull requests.")
    detail = f"This repository's plan has no draft pull requests. {otherwise}, and whose text says why."
    return Check("drafts", "not ok", detail, "A Team or Enterprise plan, or a public repository, has them.")


def check_default_branch(
    name: str, found: models.Branch | Refused | None, rules: Sequence[models.BranchRule] | Refused
) -> Check:
    if found is None:
        return Check("default branch", "not ok", "The repository has no commit yet.", "Push one.")
    guarded = not isinstance(rules, Refused) and {"pull_request", "update"} & {rule.type for rule in rules}
    if guarded or (isinstance(found, models.Branch) and found.protected):
        return Check("default branch", "ok", f"{name} is protected.")
    if isinstance(found, Refused):
        return Check("default branch", "cannot tell", found.message)
    detail = f"{name} is not protected: anyone with push access can push to it, also agent-fix, which never does."
    if isinstance(rules, Refused) and rules.is_about_the_plan:
        return Check("default branch", "not ok", detail, "This plan cannot protect branches of private repositories.")
    return Check("default branch", "not ok", detail, "Protect it with a ruleset: Settings, Rules, Rulesets.")


def check_label(name: str, found: bool | Refused) -> Check:
    if isinstance(found, Refused):
        return Check("label", "cannot tell", found.message)
    if found:
        return Check("label", "ok", f"The label {name} exists.")
    return Check("label", "not ok", f"There is no label {name}.", "Create it: Issues, Labels, New label.")


def check_configuration(problem: str | Refused, *, present: bool) -> Check:
    if isinstance(problem, Refused):
        return Check("configuration", "cannot tell", problem.message)
    if problem:
        return Check("configuration", "not ok", problem, "Fix the file on the default branch; nothing runs until then.")
    return Check(
        "configuration",
        "ok",
        ".github/agent-fix.yml is valid." if present else "There is no .github/agent-fix.yml; the defaults apply.",
    )


def check_actions(
    repository: models.WorkflowPermissions | Refused, organisation: models.WorkflowPermissions | Refused | None
) -> Check:
    """Whether a workflow's own token may open pull requests. `organisation` is None without an organisation."""
    allowed = [
        answer.can_approve_pull_request_reviews if isinstance(answer, models.WorkflowPermissions) else None
        for answer in (repository, organisation)
    ]
    if allowed[0] and allowed[1] is not False:
        return Check("Actions", "ok", "Workflows may open pull requests with their own token.")
    if allowed[1] is False:
        where = f"In the organisation: Settings, Actions, General, {OPEN_PULL_REQUESTS}; then the same here."
    else:
        where = f"Settings, Actions, General, {OPEN_PULL_REQUESTS}. If greyed out, change the organisation's first."
    if False in allowed:
        return Check("Actions", "not ok", "Workflows may not open pull requests with their own token.", where)
    detail = "Only an administrator's token shows whether workflows may open pull requests. Only the Action needs that."
    return Check("Actions", "cannot tell", detail, where)


def check_approval(login: str, *, enterprise_server: bool) -> Check:
    """Whether workflows run on a pull request that this account opens."""
    if login != "github-actions[bot]":
        detail = (
            f"Workflows of pull requests by {login} start automatically, unless a commit message contains [skip ci]."
        )
        return Check("workflow approval", "ok", detail)
    if enterprise_server:
        detail = "Workflows do not start on pull requests that a workflow's own token opens."
        return Check(
            "workflow approval",
            "not ok",
            detail,
            "Give the Action an App's token, or reopen the pull requests by hand.",
        )
    detail = (
        "Workflows on pull requests that a workflow's own token opens wait for the button “Approve workflows to run”."
    )
    return Check("workflow approval", "cannot tell", f"{detail} No API reports this for a repository.")


def check_webhook(address: str, delivery: models.DeliveryResponse | None, *, resent: bool) -> Check:
    """`delivery` is the last one: of the ping sent again if `resent`, else of any event."""
    if not address:
        return Check("webhook", "ok", "The App has no webhook: the server polls GitHub.")
    if delivery is None and resent:
        detail = f"GitHub does not yet show whether the ping reached {address}."
        return Check("webhook", "cannot tell", detail, "See Recent deliveries on the App's page.")
    if delivery is None:
        detail = f"GitHub has sent nothing to {address} for three days and has no ping to send again."
        return Check("webhook", "cannot tell", detail, "Add a label to an issue, then run this again.")
    what = "The ping" if resent else f"The last delivery ({delivery.event})"
    if 200 <= delivery.status_code < 300:
        return Check("webhook", "ok", f"{what} reached {address}.")
    answer = f"{delivery.status_code or ''} {delivery.status}".strip() or "no answer"
    repair = (
        "Check that the server runs, that the proxy forwards /webhook, and that the App's page has the right address."
    )
    if delivery.status_code in {401, 403}:
        repair = "Check that AGENT_FIX_WEBHOOK_SECRET is the one on the App's page."
    if delivery.status == "pending":
        return Check("webhook", "not ok", f"{what} to {address} has not been answered yet.", repair)
    return Check("webhook", "not ok", f"{what} to {address} failed: {answer}.", repair)


def check_branch_rules(
    pushed: OwnPush, rules: Sequence[models.BranchRule] | Refused, bypassed: Collection[int], page: str
) -> Check:
    """Whether rulesets allow a push. `bypassed` are the ids of rulesets that do not apply to us."""
    if isinstance(rules, Refused):
        if rules.is_about_the_plan:
            return Check("rulesets", "ok", "This repository's plan has none.")
        return Check("rulesets", "cannot tell", rules.message)
    binding = [rule for rule in rules if rule.ruleset_id not in bypassed]
    if forbidden := [(reason, rule) for rule in binding if (reason := _refusal(rule, pushed))]:
        pages = ", ".join(f"{page}/{number}" for number in sorted({rule.ruleset_id for _, rule in forbidden}))
        why = "; ".join(dict.fromkeys(reason for reason, _ in forbidden))
        repair = f"Exclude the branch from the ruleset, or let agent-fix bypass it: {pages}"
        return Check("rulesets", "not ok", f"{pushed.branch}: {why}.", repair)
    if unclear := [reason for rule in binding if (reason := _unclear(rule, pushed))]:
        return Check("rulesets", "cannot tell", f"{pushed.branch}: {'; '.join(unclear)}.", f"Look at {page}")
    limits = "".join(f" But {LIMITING_RULES[rule.type]}." for rule in binding if rule.type in LIMITING_RULES)
    return Check("rulesets", "ok", f"No ruleset forbids a push to {pushed.branch}.{limits}")


def check_branch_protections(
    pushed: OwnPush, rules: Sequence[Protection] | Refused, *, complete: bool, page: str
) -> Check:
    """Whether classic branch protection allows a push. Only an administrator sees the `complete` list."""
    branch = pushed.branch
    if isinstance(rules, Refused):
        if rules.is_about_the_plan:
            return Check("branch protection", "ok", "This repository's plan has none.")
        detail = f"Only an administrator's token shows the branch protection rules for {branch}."
        hint = f"Look for a rule such as `{branch.partition('/')[0]}/**` or `**/*` at {page}"
        return Check("branch protection", "cannot tell", detail, hint)
    matching = [rule for rule in rules if _matches(rule.pattern, branch)]
    if forbidden := [f"{rule.pattern}: {reason}" for rule in matching for reason in _forbidden(rule, pushed)]:
        repair = f"Narrow the pattern, or let agent-fix bypass it: {page}"
        return Check("branch protection", "not ok", f"{'; '.join(forbidden)}.", repair)
    if not complete and not rules:
        return check_branch_protections(pushed, Refused(""), complete=False, page=page)
    limits = (
        " But `/agent rebase` cannot push its merge." if any(rule.requires_linear_history for rule in matching) else ""
    )
    return Check("branch protection", "ok", f"No rule forbids a push to {branch}.{limits}")


def _forbidden(rule: Protection, pushed: OwnPush) -> list[str]:
    reasons = {
        "only some people and Apps may push; agent-fix must be one of them": rule.restricts_pushes,
        "nobody may create such a branch": rule.blocks_creations and not rule.restricts_pushes,
        BLOCKING_RULES["required_signatures"]: rule.requires_commit_signatures and not pushed.signed,
        BLOCKING_RULES["pull_request"]: rule.requires_approving_reviews,
        BLOCKING_RULES["required_status_checks"]: rule.requires_status_checks,
        "the branch is locked": rule.lock_branch,
    }
    return [text for text, holds in reasons.items() if holds]


def _refusal(rule: models.BranchRule, pushed: OwnPush) -> str:
    """Why a rule refuses all our pushes; empty if it does not."""
    if rule.type == "required_signatures" and pushed.signed:
        return ""
    if rule.type in BLOCKING_RULES:
        return BLOCKING_RULES[rule.type]
    text = _subject_of(rule, pushed)
    if not text or _fits(rule, text) is not False:
        return ""
    return f"{text} does not match {_pattern(rule)}"


def _subject_of(rule: models.BranchRule, pushed: OwnPush) -> str:
    """The branch or email that must match the rule's pattern; empty for other rules."""
    by = {"branch_name_pattern": pushed.branch}
    by |= dict.fromkeys(("commit_author_email_pattern", "committer_email_pattern"), pushed.email)
    return by.get(rule.type, "")


def _pattern(rule: models.BranchRule) -> str:
    parameters = rule.parameters or {}
    negated = "not " if parameters.get("negate") else ""
    return f"“{negated}{_readable(str(parameters.get('operator')))} {parameters.get('pattern')}”"


def _fits(rule: models.BranchRule, text: str) -> bool | None:
    """Whether a text matches a rule's pattern; None if that cannot be determined here."""
    parameters = rule.parameters or {}
    found = _found(str(parameters.get("operator")), str(parameters.get("pattern")), text)
    return None if found is None else found is not bool(parameters.get("negate"))


def _found(operator: str, pattern: str, text: str) -> bool | None:
    match operator:
        case "starts_with":
            return text.startswith(pattern)
        case "ends_with":
            return text.endswith(pattern)
        case "contains":
            return pattern in text
        case "regex":
            try:
                return re.search(pattern, text) is not None
            except re.error:  # GitHub's regular expressions are not all valid in Python
                return None
    return None


def _unclear(rule: models.BranchRule, pushed: OwnPush) -> str:
    if text := _subject_of(rule, pushed):
        return "" if _fits(rule, text) else f"does {text} fit {_pattern(rule)}?"
    if rule.type == "commit_message_pattern":
        if "signed-off-by" in (pattern := _pattern(rule)).lower():
            return "" if pushed.signed_off else f"commit messages must match {pattern}: set `signoff: true` in {SOURCE}"
        return f"commit messages must match {pattern}"
    if rule.type in RULES_ABOUT_FILES:
        return f"a rule about files ({_readable(rule.type)}) may refuse a change"
    known = rule.type in LIMITING_RULES or rule.type in {*HARMLESS_RULES, "required_signatures"}
    return "" if known else f"agent-fix does not know this rule ({_readable(rule.type)})"


def _matches(pattern: str, branch: str) -> bool:
    """As on GitHub: `*` stops at a slash, `**/` does not (Ruby's File.fnmatch with FNM_PATHNAME)."""
    parts = re.split(r"(\*\*/|\*+|\?|\[[^\]]*\])", pattern)
    special = {"**/": "(?:.*/)?", "?": "[^/]"}
    regex = "".join(
        special.get(part)
        or ("[^/]*" if part.startswith("*") else part.replace("[!", "[^") if part.startswith("[") else re.escape(part))
        for part in parts
        if part
    )
    return re.fullmatch(regex, branch) is not None


def _readable(name: str) -> str:
    return name.replace("_", " ")


def _listed(permissions: Grant) -> str:
    """`checks, contents: write; actions: read`."""
    groups = {
        access: ", ".join(_readable(name) for name, each in sorted(permissions.items()) if each == access)
        for access in ("write", "read")
    }
    return "; ".join(f"{names}: {access}" for access, names in groups.items() if names)
