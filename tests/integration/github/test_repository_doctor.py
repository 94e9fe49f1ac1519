"""`agent-fix doctor --github`: every state that a repository can be in has its line; nothing on GitHub is changed."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config.settings import settings_from
from app.core.checks import Check, State
from app.core.errors import AgentFixError
from app.github import repository_doctor
from app.github.auth import EVENTS
from app.github.calls import BY_APP, grant
from app.github.connection import AppConnection, AppCredentials, GitHubHost, TokenConnection
from app.github.repository_doctor import examine_app, examine_token
from app.server.github_access import examine
from tests.support.console import Console
from tests.support.github.authentication import APP_ID, app_key
from tests.support.github.fake import API, SITE, FakeGitHubSetup, make_fake_github, served
from tests.support.github.faults import Fault
from tests.support.github.settings import RULES
from tests.support.github.world import Delivery, Token, User

BRANCH = "agent-fix/issue-1-example"
READING = {"contents": "read", "issues": "read", "pull_requests": "read", "checks": "read"}
READING |= {"statuses": "read", "actions": "read", "metadata": "read"}
Change = Callable[[FakeGitHubSetup], object]


@pytest.fixture
def fake_github(tmp_path: Path) -> FakeGitHubSetup:
    """A repository in which everything is as it should be."""
    fake_github = make_fake_github(tmp_path)
    fake_github.installation.events = list(EVENTS)
    fake_github.repo.labels.add("agent-fix")
    fake_github.repo.guarded = True
    fake_github.repo.actions_open_pulls = True
    fake_github.world.hook_answers = (202, "OK")
    ping(fake_github)
    return fake_github


def ping(fake_github: FakeGitHubSetup) -> None:
    fake_github.world.deliveries.append(Delivery(7, "a-guid", "ping", None, {}, fake_github.world.now, 200))


async def as_app(fake_github: FakeGitHubSetup, place: str = "ada/sample") -> dict[str, Check]:
    owner, _, name = place.partition("/")
    async with fake_github.app() as app:
        return named(fake_github, await examine_app(app, owner, name, "agent-fix"))


async def with_token(fake_github: FakeGitHubSetup, token: Token) -> dict[str, Check]:
    fake_github.world.tokens["a-token"] = token
    transport = httpx.ASGITransport(fake_github.github)
    async with TokenConnection(
        GitHubHost(API, SITE),
        "a-token",
        transport=transport,
        now=lambda: fake_github.world.now,
        sleep=fake_github.sleep,
    ) as bearer:
        return named(fake_github, await examine_token(bearer, "ada", "sample", "agent-fix"))


def named(fake_github: FakeGitHubSetup, found: list[Check]) -> dict[str, Check]:
    """By their names, once it is sure that nothing was changed."""
    assert len({each.name for each in found}) == len(found)
    assert all(each.detail.strip() for each in found)
    assert all(each.repair for each in found if each.state == "not ok")
    changing = {f"{call.method} {call.path}" for call in fake_github.github.calls if call.method != "GET"}
    tokens = f"POST /app/installations/{fake_github.installation.id}/access_tokens"
    assert changing <= {tokens, "POST /graphql", "POST /app/hook/deliveries/7/attempts"}
    asked = [call.body["query"].split()[0] for call in fake_github.github.calls if call.path == "/graphql"]
    assert set(asked) <= {"query"}
    return {each.name: each for each in found}


def token_of(fake_github: FakeGitHubSetup, user: User | None, scopes: str | None = None, **permissions: str) -> Token:
    until = fake_github.world.now.replace(year=2099)
    held = permissions or READING
    return Token(fake_github.installation.id, frozenset({fake_github.repo.id}), held, until, user=user, scopes=scopes)


def said(finding: Check) -> str:
    return f"{finding.detail} {finding.repair}"


# The App


async def test_a_repository_that_is_ready_for_the_app(fake_github: FakeGitHubSetup) -> None:
    found = await as_app(fake_github)
    assert {name: each.state for name, each in found.items()} == {
        "App": "ok",
        "installation": "ok",
        "permissions": "ok",
        "events": "ok",
        "webhook": "ok",
        "repository": "ok",
        "configuration": "ok",
        "label": "ok",
        "drafts": "ok",
        "rulesets": "ok",
        "branch protection": "cannot tell",
        "default branch": "ok",
        "Actions": "cannot tell",
        "workflow approval": "ok",
    }
    assert "checks, contents, issues, pull requests: write" in found["permissions"].detail
    assert said(found["webhook"]).startswith("The ping reached https://agent-fix.example/webhook.")


def rule(kind: str, *, branches: str = "agent-fix/.*", number: int = 42, **parameters: Any) -> Change:
    """A rule of an active ruleset for the branches of agent-fix."""
    extra = {"parameters": parameters} if parameters else {}
    about = {"ruleset_id": number, "ruleset_source_type": "Repository", "ruleset_source": "ada/sample"}
    return lambda fake_github: fake_github.repo.rules.append({"type": kind, **about, "branches": branches, **extra})


def bypassed(how: str) -> Change:
    def change(fake_github: FakeGitHubSetup) -> None:
        rule("required_signatures")(fake_github)
        fake_github.repo.bypasses[42] = how

    return change


def set_repo(**values: Any) -> Change:
    return lambda fake_github: vars(fake_github.repo).update(values)


def config(text: str) -> Change:
    return lambda fake_github: fake_github.world.push_as_human(
        fake_github.repo, "main", {".github/agent-fix.yml": text}
    )


def pattern(operator: str, pattern: str, *, negate: bool = False) -> Mapping[str, Any]:
    return {"operator": operator, "pattern": pattern, "negate": negate, "name": "a rule"}


def hook(**values: Any) -> Change:
    return lambda fake_github: vars(fake_github.world).update(values)


def refuses(path: str, status: int = 502) -> Change:
    return lambda fake_github: fake_github.github.faults.append(Fault(f"GET {path}", status, times=9))


def without(permission: str, access: str | None = None) -> Change:
    def change(fake_github: FakeGitHubSetup) -> None:
        fake_github.installation.permissions.pop(permission)
        fake_github.installation.permissions |= {permission: access} if access else {}

    return change


def no_deliveries(fake_github: FakeGitHubSetup) -> None:
    fake_github.world.deliveries.clear()


def only_delivery(status: int) -> Change:
    def change(fake_github: FakeGitHubSetup) -> None:
        fake_github.world.deliveries[:] = [Delivery(8, "b", "issues", "labeled", {}, fake_github.world.now, status)]

    return change


def many(*changes: Change) -> Change:
    return lambda fake_github: [change(fake_github) for change in changes]


REQUIRED: Mapping[str, Mapping[str, Any]] = {
    "merge_queue": {
        "check_response_timeout_minutes": 60,
        "grouping_strategy": "ALLGREEN",
        "max_entries_to_build": 5,
        "max_entries_to_merge": 5,
        "merge_method": "MERGE",
        "min_entries_to_merge": 1,
        "min_entries_to_merge_wait_minutes": 5,
    },
    "required_status_checks": {"required_status_checks": [], "strict_required_status_checks_policy": False},
    "required_deployments": {"required_deployment_environments": ["staging"]},
}
"""Of a few rules GitHub's description demands parameters."""

STATES: dict[str, tuple[Change, str, State, tuple[str, ...]]] = {
    "a permission is missing": (without("checks"), "permissions", "not ok", ("checks: write (it has none)", "accept")),
    "a permission is too small": (
        without("contents", "read"),
        "permissions",
        "not ok",
        ("contents: write (it has read)",),
    ),
    "an event is missing": (
        lambda fake_github: fake_github.installation.events.remove("push"),
        "events",
        "not ok",
        ("push",),
    ),
    "archived": (set_repo(archived=True), "repository", "not ok", ("archived", "Unarchive")),
    "without issues": (set_repo(has_issues=False), "repository", "not ok", ("Issues are turned off", "Features")),
    "a good configuration": (config("test: make\n"), "configuration", "ok", ("is valid",)),
    "a broken configuration": (config("tets: make\n"), "configuration", "not ok", ("tets", "nothing runs")),
    "a configuration that is not to be had": (
        refuses(".*/contents/.*"),
        "configuration",
        "cannot tell",
        ("GitHub answered 502",),
    ),
    "no label": (
        lambda fake_github: fake_github.repo.labels.clear(),
        "label",
        "not ok",
        ("no label agent-fix", "New label"),
    ),
    "a label in capitals": (set_repo(labels={"Agent-Fix"}), "label", "ok", ()),
    "a private repository with drafts": (set_repo(private=True), "drafts", "ok", ("has draft pull requests",)),
    "a private repository without": (
        set_repo(private=True, drafts=False),
        "drafts",
        "not ok",
        ("no draft pull requests", "whose title begins with “Draft:”"),
    ),
    "a plan that nobody tells": (
        many(
            set_repo(private=True),
            lambda fake_github: fake_github.github.faults.append(Fault("POST /graphql", 502, times=9)),
        ),
        "drafts",
        "cannot tell",
        ("GitHub answered 502", "whose title begins with “Draft:”"),
    ),
    "rules that are not to be had": (refuses(".*/rules/branches/.*", 500), "rulesets", "cannot tell", ("500",)),
    "no rules in this plan": (set_repo(private=True, has_rules=False), "rulesets", "ok", ("plan has none",)),
    "rules of another branch": (rule("update", branches="main"), "rulesets", "ok", (BRANCH,)),
    **{
        f"rule {kind}": (
            rule(kind, **REQUIRED.get(kind, {})),
            "rulesets",
            "not ok",
            (words, f"{SITE}/ada/sample/rules/42"),
        )
        for kind, words in repository_doctor.BLOCKING_RULES.items()
    },
    **{
        f"rule {kind}": (rule(kind), "rulesets", "ok", (words,))
        for kind, words in repository_doctor.LIMITING_RULES.items()
    },
    "signatures, bypassed": (bypassed("always"), "rulesets", "ok", ()),
    "signatures, exempt": (bypassed("exempt"), "rulesets", "ok", ()),
    "signatures, bypassed by pull requests": (bypassed("pull_requests_only"), "rulesets", "not ok", ("signed",)),
    "a name that does not match": (
        rule("branch_name_pattern", **pattern("starts_with", "feature/")),
        "rulesets",
        "not ok",
        (f"{BRANCH} does not match “starts with feature/”",),
    ),
    "a name that must not fit": (
        rule("branch_name_pattern", **pattern("contains", "agent", negate=True)),
        "rulesets",
        "not ok",
        ("does not match “not contains agent”",),
    ),
    "a name that fits": (rule("branch_name_pattern", **pattern("regex", "^agent-fix/")), "rulesets", "ok", ()),
    "a regular expression that is not Python's": (
        rule("branch_name_pattern", **pattern("regex", "(?<!a+)(")),
        "rulesets",
        "cannot tell",
        (f"does {BRANCH} fit",),
    ),
    "an author who does not match": (
        rule("commit_author_email_pattern", **pattern("ends_with", "@example.com")),
        "rulesets",
        "not ok",
        ("@users.noreply.github.example does not match",),
    ),
    "a committer who fits": (
        rule("committer_email_pattern", **pattern("contains", "noreply")),
        "rulesets",
        "ok",
        (),
    ),
    "commits that have to be signed": (
        rule("required_signatures"),
        "rulesets",
        "not ok",
        ("`sign: true` in .github/agent-fix.yml", "AGENT_FIX_SIGNING_KEY"),
    ),
    "commits that are signed": (many(rule("required_signatures"), config("sign: true\n")), "rulesets", "ok", ()),
    "a sign-off that is missing": (
        rule("commit_message_pattern", **pattern("contains", "Signed-off-by: ")),
        "rulesets",
        "cannot tell",
        ("set `signoff: true` in .github/agent-fix.yml",),
    ),
    "a sign-off": (
        many(rule("commit_message_pattern", **pattern("contains", "Signed-off-by: ")), config("signoff: true\n")),
        "rulesets",
        "ok",
        (),
    ),
    "messages that have to fit": (
        rule("commit_message_pattern", **pattern("starts_with", "issue")),
        "rulesets",
        "cannot tell",
        ("commit messages must match “starts with issue”",),
    ),
    "a rule about files": (
        rule("file_path_restriction", restricted_file_paths=["secrets/**"]),
        "rulesets",
        "cannot tell",
        ("rule about files",),
    ),
    "a rule of tomorrow": (
        rule("phase_of_the_moon"),
        "rulesets",
        "cannot tell",
        ("does not know this rule (phase of the moon)",),
    ),
    "an own branch's name": (
        many(config("branch: bots/{number}-{slug}\n"), rule("creation", branches="bots/.*")),
        "rulesets",
        "not ok",
        ("bots/1-example: nobody may create",),
    ),
    "protection of an own branch's name": (
        config("branch: bots/{number}-{slug}\n"),
        "branch protection",
        "cannot tell",
        ("bots/1-example", "`bots/**`"),
    ),
    "main by a ruleset": (
        many(set_repo(guarded=False), rule("pull_request", branches="main")),
        "default branch",
        "ok",
        ("main is protected",),
    ),
    "main without protection": (
        set_repo(guarded=False),
        "default branch",
        "not ok",
        ("main is not protected", "Rulesets"),
    ),
    "main in a plan without protection": (
        set_repo(guarded=False, private=True, has_rules=False),
        "default branch",
        "not ok",
        ("This plan cannot protect branches",),
    ),
    "a default branch that is not to be had": (
        refuses(".*/branches/main"),
        "default branch",
        "cannot tell",
        ("502",),
    ),
    "a webhook that is refused": (
        hook(hook_answers=(401, "")),
        "webhook",
        "not ok",
        ("401", "AGENT_FIX_WEBHOOK_SECRET"),
    ),
    "a webhook that finds nobody": (
        hook(hook_answers=(502, "")),
        "webhook",
        "not ok",
        ("Invalid HTTP Response: 502", "proxy"),
    ),
    "a webhook that finds no host": (
        hook(hook_answers=(0, "failed to connect to host")),
        "webhook",
        "not ok",
        ("failed: failed to connect to host",),
    ),
    "a ping that is not sent": (
        hook(hook_answers=None),
        "webhook",
        "not ok",
        ("has not been answered yet",),
    ),
    "no webhook": (hook(hook=""), "webhook", "ok", ("polls GitHub",)),
    "no ping, no delivery": (
        no_deliveries,
        "webhook",
        "cannot tell",
        ("nothing to https://agent-fix.example/webhook",),
    ),
    "no ping, a delivery": (only_delivery(202), "webhook", "ok", ("The last delivery (issues) reached",)),
    "no ping, a failure": (only_delivery(504), "webhook", "not ok", ("The last delivery (issues)", "504")),
    "deliveries that are not to be had": (refuses("/app/hook/deliveries"), "webhook", "cannot tell", ("502",)),
    "a webhook that nobody tells": (refuses("/app/hook/config"), "webhook", "cannot tell", ("502",)),
}


@pytest.mark.parametrize("state", STATES)
async def test_each_state_has_its_line(fake_github: FakeGitHubSetup, state: str) -> None:
    change, name, expected, words = STATES[state]
    change(fake_github)
    found = (await as_app(fake_github))[name]
    assert (found.state, [each for each in words if each not in said(found)]) == (expected, []), found


def test_every_rule_that_github_publishes_is_known() -> None:
    known = {
        *repository_doctor.BLOCKING_RULES,
        *repository_doctor.LIMITING_RULES,
        *repository_doctor.RULES_ABOUT_FILES,
        *repository_doctor.HARMLESS_RULES,
    }
    patterns = {
        "commit_message_pattern",
        "commit_author_email_pattern",
        "committer_email_pattern",
        "branch_name_pattern",
    }
    assert set(RULES) == known | patterns


async def test_an_app_without_a_webhook_needs_no_events(fake_github: FakeGitHubSetup) -> None:
    fake_github.world.hook, fake_github.installation.events = "", []
    assert "events" not in await as_app(fake_github)


async def test_an_app_that_is_not_there_ends_the_questions(fake_github: FakeGitHubSetup) -> None:
    found = await as_app(fake_github, "ada/other")
    assert list(found) == ["App", "installation"]
    assert found["installation"].state == "not ok"
    assert "https://github.example/apps/agent-fix-test/installations/new" in found["installation"].repair
    fake_github.installation.suspended = True
    assert "suspended" in (await as_app(fake_github))["installation"].detail
    strange = AppConnection(
        GitHubHost(API, SITE),
        AppCredentials(APP_ID + 1, app_key()[0]),
        transport=httpx.ASGITransport(fake_github.github),
    )
    (only,) = await examine_app(strange, "ada", "sample", "agent-fix")
    assert (only.name, only.state) == ("App", "not ok")
    assert "AGENT_FIX_PRIVATE_KEY" in only.repair


async def test_an_administrating_app_sees_more(fake_github: FakeGitHubSetup) -> None:
    fake_github.installation.permissions |= {"administration": "read"}
    found = await as_app(fake_github)
    assert (found["branch protection"].state, found["Actions"].state) == ("ok", "ok")


# A token


def admin(fake_github: FakeGitHubSetup, **more: str) -> Token:
    return token_of(
        fake_github, fake_github.owner, **READING, administration="read", organization_administration="read", **more
    )


async def test_a_token_of_an_administrator_sees_all(fake_github: FakeGitHubSetup) -> None:
    found = await with_token(fake_github, admin(fake_github))
    assert {name: each.state for name, each in found.items()} == {
        "token": "ok",
        "permissions": "cannot tell",
        "repository": "ok",
        "configuration": "ok",
        "label": "ok",
        "drafts": "ok",
        "rulesets": "ok",
        "branch protection": "ok",
        "default branch": "ok",
        "Actions": "ok",
        "workflow approval": "ok",
    }
    assert "It is ada's." in found["token"].detail
    wanted = "checks, contents, issues, pull requests: write; actions, metadata, statuses: read"
    assert f"Compare its permissions with: {wanted}." == found["permissions"].repair
    assert dict(grant(BY_APP)) | {"metadata": "read"} == {
        **dict.fromkeys(("checks", "contents", "issues", "pull_requests"), "write"),
        **dict.fromkeys(("actions", "metadata", "statuses"), "read"),
    }


@pytest.mark.parametrize(
    ("scopes", "private", "state"),
    [
        ("repo, workflow", True, "ok"),
        ("public_repo", False, "ok"),
        ("public_repo", True, "not ok"),
        ("read:org", False, "not ok"),
        ("", False, "not ok"),
    ],
)
async def test_a_classic_token_names_its_scopes(
    fake_github: FakeGitHubSetup, scopes: str, private: bool, state: str
) -> None:
    fake_github.repo.private = private
    token = token_of(fake_github, fake_github.owner, scopes, **READING)
    assert (await with_token(fake_github, token))["permissions"].state == state


async def test_a_person_who_may_not_push(fake_github: FakeGitHubSetup) -> None:
    eve = fake_github.world.add_user("eve")
    found = (await with_token(fake_github, token_of(fake_github, eve)))["permissions"]
    assert (found.state, "eve may not push" in found.detail) == ("not ok", True)


@pytest.mark.parametrize("missing", ["contents", "issues", "pull_requests", "checks", "statuses", "actions"])
async def test_a_token_that_may_not_read_something(fake_github: FakeGitHubSetup, missing: str) -> None:
    held = {name: access for name, access in READING.items() if name != missing}
    found = (await with_token(fake_github, token_of(fake_github, None, **held)))["permissions"]
    assert (found.state, missing.replace("_", " ") in found.detail) == ("not ok", True)


async def test_a_token_that_opens_nothing(fake_github: FakeGitHubSetup) -> None:
    fake_github.repo.private = True
    token = token_of(fake_github, None)
    token.revoked = True
    (only,) = (await with_token(fake_github, token)).values()
    assert (only.name, only.state) == ("token", "not ok")
    assert "401" in only.detail


PROTECTIONS: dict[str, tuple[list[dict[str, Any]], State, str]] = {
    "none": ([], "ok", BRANCH),
    "of one branch": ([{"pattern": "main", "restrictsPushes": True}], "ok", BRANCH),
    "a star stops at a slash": ([{"pattern": "*", "restrictsPushes": True}], "ok", BRANCH),
    "two stars do not": (
        [{"pattern": "**/*", "restrictsPushes": True}],
        "not ok",
        "only some people and Apps may push",
    ),
    "ours": ([{"pattern": "agent-fix/*", "requiresCommitSignatures": True}], "not ok", "signed"),
    "ours by a question mark": ([{"pattern": "agent?fix/[a-z]*", "lockBranch": True}], "not ok", "locked"),
    "creation": ([{"pattern": "agent-fix/**", "blocksCreations": True}], "not ok", "create"),
    "reviews": ([{"pattern": "agent-fix/*", "requiresApprovingReviews": True}], "not ok", "pull request"),
    "checks": ([{"pattern": "agent-fix/*", "requiresStatusChecks": True}], "not ok", "checks must pass"),
    "line": ([{"pattern": "agent-fix/*", "requiresLinearHistory": True}], "ok", "/agent rebase"),
}


@pytest.mark.parametrize("kind", PROTECTIONS)
async def test_branch_protection_rules(fake_github: FakeGitHubSetup, kind: str) -> None:
    rules, state, words = PROTECTIONS[kind]
    fake_github.repo.protections = rules
    found = (await with_token(fake_github, admin(fake_github)))["branch protection"]
    assert (found.state, words in said(found)) == (state, True), found


async def test_an_empty_list_of_branch_rules_proves_nothing(fake_github: FakeGitHubSetup) -> None:
    """w3c/validate-repos#30. An App is refused instead."""
    fake_github.repo.protections = [{"pattern": "agent-fix/*", "lockBranch": True}]
    bob = fake_github.world.add_user("bob")
    fake_github.repo.collaborators[bob.id] = "write"
    found = (await with_token(fake_github, token_of(fake_github, bob)))["branch protection"]
    assert (found.state, f"{SITE}/ada/sample/settings/branches" in found.repair) == ("cannot tell", True)


@pytest.mark.parametrize(
    ("repository", "organisation", "state", "words"),
    [
        (True, None, "ok", ""),
        (False, None, "not ok", "Settings, Actions, General"),
        (True, True, "ok", ""),
        (False, True, "not ok", "the organisation's first"),
        (False, False, "not ok", "In the organisation"),
    ],
)
async def test_whether_workflows_may_open_pull_requests(
    fake_github: FakeGitHubSetup, repository: bool, organisation: bool | None, state: str, words: str
) -> None:
    fake_github.repo.actions_open_pulls = repository
    if organisation is not None:
        fake_github.owner.type = "Organization"
        fake_github.world.organisations_open_pulls |= {"ada"} if organisation else set()
    token = admin(fake_github)
    token.user = fake_github.world.add_user("root")
    fake_github.repo.collaborators[token.user.id] = "admin"
    found = (await with_token(fake_github, token))["Actions"]
    assert (found.state, words in said(found)) == (state, True), found


async def test_without_administration_nobody_tells_whether_workflows_may(fake_github: FakeGitHubSetup) -> None:
    found = (await with_token(fake_github, token_of(fake_github, fake_github.owner)))["Actions"]
    assert found.state == "cannot tell"
    assert "Allow GitHub Actions to create and approve pull requests" in found.repair


@pytest.mark.parametrize(
    ("api", "state", "words"),
    [(API, "cannot tell", "Approve workflows to run"), (f"{API}/api/v3", "not ok", "do not start")],
)
def test_workflows_of_a_workflows_pull_request_need_approval_or_a_token(api: str, state: str, words: str) -> None:
    enterprise = GitHubHost(api, SITE).is_enterprise_server
    found = repository_doctor.check_approval("github-actions[bot]", enterprise_server=enterprise)
    assert (found.state, words in found.detail) == (state, True)


async def test_a_workflow_s_own_token(fake_github: FakeGitHubSetup) -> None:
    found = await with_token(fake_github, token_of(fake_github, None))
    assert "github-actions[bot]" in found["token"].detail
    assert found["workflow approval"].state == "cannot tell"
    assert found["permissions"].state == "cannot tell"


# The command


async def test_nothing_in_the_environment_opens_github() -> None:
    with pytest.raises(AgentFixError, match="There are no credentials for GitHub"):
        await examine(settings_from({"HOME": "/nowhere"}), "ada", "sample")


def console(fake_github: FakeGitHubSetup, tmp_path: Path, address: str) -> Console:
    (tmp_path / "key.pem").write_text(app_key()[0])
    (tmp_path / "key.pem").chmod(0o600)
    return Console(
        tmp_path / "console",
        {
            "AGENT_FIX_GITHUB_URL": address,
            "AGENT_FIX_GITHUB_API_URL": address,
            "AGENT_FIX_APP_ID": str(APP_ID),
            "AGENT_FIX_PRIVATE_KEY": str(tmp_path / "key.pem"),
        },
    )


def test_the_command_prints_lines_and_ends_with_a_code(fake_github: FakeGitHubSetup, tmp_path: Path) -> None:
    with served(fake_github.github) as address:
        user = console(fake_github, tmp_path, address)
        good = user.execute("doctor", "--github", "ada/sample", "--state", user.state)
        fake_github.repo.labels.clear()
        bad = user.execute("doctor", "--github", "ada/sample", "--state", user.state, "--json")
        token = fake_github.world.tokens["a-token"] = token_of(fake_github, fake_github.owner, **READING)
        token.permissions = {}
        user.environment["AGENT_FIX_GITHUB_TOKEN"] = "a-token"
        other = user.execute("doctor", "--github", "ada/sample", "--state", user.state)
    assert good.code == 0, good.said
    assert "  ok          label                The label agent-fix exists." in good.stdout
    assert "  cannot tell Actions" in good.stdout
    assert bad.code == 11, bad.said
    told = json.loads(bad.stdout)
    assert told["repository"] == "ada/sample"
    (label,) = [each for each in told["findings"] if each["name"] == "label"]
    assert (label["state"], "New label" in label["repair"]) == ("not ok", True)
    assert (other.code, "It is ada's." in other.stdout) == (11, True), other.said


@pytest.mark.parametrize("place", ["sample", "ada/", "a/b/c"])
def test_a_name_that_is_not_a_repository_is_refused(place: str, tmp_path: Path) -> None:
    user = Console(tmp_path)
    done = user.execute("doctor", "--github", place, "--state", user.state)
    assert (done.code, "is not a repository" in done.stderr) == (2, True)
