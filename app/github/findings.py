"""What GitHub's answers about a repository mean for agent-fix: a line each, with the repair where it needs one."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from app.github import api_models
from app.github.connection import Grant
from app.github.graphql import Protection

State = Literal["ok", "not ok", "cannot tell"]

BLOCKING_RULES: Final = {
    "creation": "nobody may create this branch",
    "update": "nobody may push to this branch",
    "required_signatures": "commits must be signed, and agent-fix does not sign",
    "pull_request": "changes come by pull request only, so the branch of one cannot be pushed",
    "required_status_checks": "checks must have passed before a push",
    "required_deployments": "deployments must have succeeded before a push",
    "workflows": "workflows must have passed before a push",
    "code_scanning": "code scanning must have passed before a push",
    "code_quality": "code quality must have passed before a push",
    "code_coverage": "code coverage must have passed before a push",
    "license_compliance_scanning": "the scan of licences must have passed before a push",
    "merge_queue": "changes come by the merge queue only",
}
LIMITING_RULES: Final = {
    "required_linear_history": "`/agent rebase` cannot push its merge",
    "non_fast_forward": "a draft opened early (`pull_request: early`) cannot be replaced",
    "deletion": "the branch of an early draft without a change is left",
}
RULES_ABOUT_FILES: Final = frozenset(
    {"file_path_restriction", "max_file_path_length", "file_extension_restriction", "max_file_size"}
)
HARMLESS_RULES: Final = frozenset({"copilot_code_review", "tag_name_pattern"})
OPEN_PULL_REQUESTS: Final = "Workflow permissions: “Allow GitHub Actions to create and approve pull requests”"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    state: State
    detail: str
    repair: str = ""


class Refused(NamedTuple):
    """A question that GitHub did not answer, and its words."""

    words: str

    @property
    def is_about_the_plan(self) -> bool:
        """Private repositories of a Free plan have neither rulesets nor protected branches: "Upgrade to GitHub …"."""
        return "upgrade to github" in self.words.lower()


def app_permissions(installation: api_models.InstallationResponse, wanted: Grant) -> Finding:
    held = installation.permissions
    missing = [
        f"{_words(name)}: {access} (it has {held.get(name, 'none')})"
        for name, access in sorted(wanted.items())
        if held.get(name) not in {access, "write", "admin"}
    ]
    if not missing:
        return Finding("permissions", "ok", _listed(wanted))
    repair = f"Add them on the App's page under Permissions & events, then accept them: {installation.html_url}"
    return Finding("permissions", "not ok", f"The App's installation lacks {'; '.join(missing)}.", repair)


def app_events(installation: api_models.InstallationResponse, wanted: Iterable[str]) -> Finding:
    missing = sorted(set(wanted) - set(installation.events))
    if not missing:
        return Finding("events", "ok", "The App is told of everything that it acts on.")
    return Finding(
        "events",
        "not ok",
        f"The App gets no webhooks of: {', '.join(missing)}.",
        "Choose them on the App's page under Permissions & events.",
    )


def token_permissions(
    repository: api_models.RepositoryResponse,
    login: str,
    scopes: str | None,
    reads: Mapping[str, Refused | None],
    wanted: Grant,
) -> Finding:
    """`scopes` are those of a classic token, None of any other; `reads` tell what each permission's reading came to."""
    if not login.endswith("[bot]") and not repository.permissions.push:
        return Finding(
            "permissions",
            "not ok",
            f"{login} may not push to this repository.",
            f"Give {login} the role Write, or use the token of an account that has it.",
        )
    if scopes is not None:
        return _scopes(repository, scopes)
    if unread := [_words(name) for name, answer in reads.items() if answer is not None]:
        detail = f"The token may not read {', '.join(unread)}."
        return Finding("permissions", "not ok", detail, f"Give it: {_listed(wanted)}.")
    return Finding(
        "permissions",
        "cannot tell",
        "Reading works. Whether the token may also write, only writing would show.",
        f"Compare it with: {_listed(wanted)}.",
    )


def _scopes(repository: api_models.RepositoryResponse, scopes: str) -> Finding:
    held = {scope.strip() for scope in scopes.split(",")}
    if "repo" in held or ("public_repo" in held and not repository.private):
        return Finding("permissions", "ok", f"The token's scopes suffice: {scopes}.")
    wanted = "repo" if repository.private else "public_repo"
    detail = f"The token's scopes are {scopes or 'none'}."
    return Finding("permissions", "not ok", detail, f"It needs the scope {wanted}.")


def repository_state(repository: api_models.RepositoryResponse, place: str) -> Finding:
    visibility = "private" if repository.private else "public"
    if repository.archived:
        return Finding("repository", "not ok", f"{place} is archived: nothing can be written.", "Unarchive it.")
    if not repository.has_issues:
        repair = "Turn them on under Settings, General, Features."
        return Finding("repository", "not ok", f"{place} has its issues turned off.", repair)
    return Finding("repository", "ok", f"{place}, {visibility}, default branch {repository.default_branch}")


def drafts(available: bool | Refused) -> Finding:
    otherwise = "Where there are none, an ordinary pull request is opened: its title begins with “Draft:”"
    if isinstance(available, Refused):
        return Finding("drafts", "cannot tell", f"{available.words} {otherwise}.")
    if available:
        return Finding("drafts", "ok", "This repository's plan has draft pull requests.")
    detail = f"This repository's plan has no draft pull requests. {otherwise}, and its text says why."
    return Finding("drafts", "not ok", detail, "A Team or Enterprise plan, or a public repository, has them.")


def default_branch(
    name: str, found: api_models.Branch | Refused | None, rules: Sequence[api_models.BranchRule] | Refused
) -> Finding:
    if found is None:
        return Finding("default branch", "not ok", "The repository has no commit yet.", "Push one.")
    guarded = not isinstance(rules, Refused) and {"pull_request", "update"} & {rule.type for rule in rules}
    if guarded or (isinstance(found, api_models.Branch) and found.protected):
        return Finding("default branch", "ok", f"{name} is protected.")
    if isinstance(found, Refused):
        return Finding("default branch", "cannot tell", found.words)
    detail = f"{name} is not protected: whoever may push can push there, agent-fix's own token too. It never does."
    if isinstance(rules, Refused) and rules.is_about_the_plan:
        return Finding("default branch", "not ok", detail, "This plan protects no branches of private repositories.")
    return Finding("default branch", "not ok", detail, "Protect it with a ruleset: Settings, Rules, Rulesets.")


def label(name: str, found: bool | Refused) -> Finding:
    if isinstance(found, Refused):
        return Finding("label", "cannot tell", found.words)
    if found:
        return Finding("label", "ok", f"The label {name} is there.")
    return Finding("label", "not ok", f"There is no label {name}.", "Make it: Issues, Labels, New label.")


def configuration(problem: str | Refused, *, present: bool) -> Finding:
    if isinstance(problem, Refused):
        return Finding("configuration", "cannot tell", problem.words)
    if problem:
        return Finding("configuration", "not ok", problem, "Nothing runs until it is mended on the default branch.")
    return Finding("configuration", "ok", ".github/agent-fix.yml can be read." if present else "There is none.")


def actions(
    repository: api_models.WorkflowPermissions | Refused, organisation: api_models.WorkflowPermissions | Refused | None
) -> Finding:
    """Whether a workflow's own token may open pull requests. `organisation` is None where there is none."""
    allowed = [
        answer.can_approve_pull_request_reviews if isinstance(answer, api_models.WorkflowPermissions) else None
        for answer in (repository, organisation)
    ]
    if allowed[0] and allowed[1] is not False:
        return Finding("Actions", "ok", "Workflows may open pull requests with their own token.")
    if allowed[1] is False:
        where = f"In the organisation: Settings, Actions, General, {OPEN_PULL_REQUESTS}; then the same here."
    else:
        where = (
            f"Settings, Actions, General, {OPEN_PULL_REQUESTS}. Where it is grey, the organisation's settings first."
        )
    if False in allowed:
        return Finding("Actions", "not ok", "Workflows may not open pull requests with their own token.", where)
    words = (
        "Only an administrator's token shows whether workflows may open pull requests. It matters to the Action only."
    )
    return Finding("Actions", "cannot tell", words, where)


def approval(login: str, *, enterprise_server: bool) -> Finding:
    """What becomes of the workflows of a pull request that this account opens."""
    if login != "github-actions[bot]":
        detail = f"Workflows of pull requests by {login} start by themselves, once a commit does not say [skip ci]."
        return Finding("workflow approval", "ok", detail)
    if enterprise_server:
        detail = "Workflows of pull requests that a workflow's own token opens do not start."
        return Finding("workflow approval", "not ok", detail, "Give the Action an App's token, or reopen them by hand.")
    detail = (
        "Workflows of pull requests that a workflow's own token opens wait for “Approve workflows to run”, a button."
    )
    return Finding("workflow approval", "cannot tell", f"{detail} No API says so of a repository.")


def webhook(address: str, delivery: api_models.DeliveryResponse | None, *, asked: bool) -> Finding:
    """`delivery` is the last one: of the ping that was `asked` for, or whichever there was."""
    if not address:
        return Finding("webhook", "ok", "The App has none: the server looks at GitHub by itself.")
    if delivery is None and asked:
        detail = f"GitHub has not yet told whether the ping that it was asked for reached {address}."
        return Finding("webhook", "cannot tell", detail, "Look at Recent deliveries on the App's page.")
    if delivery is None:
        detail = f"GitHub has sent nothing to {address} for three days, nor keeps a ping that it could send again."
        return Finding("webhook", "cannot tell", detail, "Put a label on an issue, then ask again.")
    what = "The ping that it was asked for" if asked else f"The last delivery ({delivery.event})"
    if 200 <= delivery.status_code < 300:
        return Finding("webhook", "ok", f"{what} reached {address}.")
    answer = f"{delivery.status_code or ''} {delivery.status}".strip() or "no answer"
    repair = "Is the server up, does the proxy pass /webhook on, is the address on the App's page right?"
    if delivery.status_code in {401, 403}:
        repair = "Is AGENT_FIX_WEBHOOK_SECRET the one on the App's page?"
    return Finding("webhook", "not ok", f"{what} to {address} came to: {answer}.", repair)


class OwnPush(NamedTuple):
    """What agent-fix would push: the branch, and the address that its commits are by."""

    branch: str
    email: str


def branch_rules(
    pushed: OwnPush, rules: Sequence[api_models.BranchRule] | Refused, bypassed: Collection[int], page: str
) -> Finding:
    """What rulesets make of a push. `bypassed` are those that do not bind us."""
    if isinstance(rules, Refused):
        if rules.is_about_the_plan:
            return Finding("rulesets", "ok", "This repository's plan has none.")
        return Finding("rulesets", "cannot tell", rules.words)
    binding = [rule for rule in rules if rule.ruleset_id not in bypassed]
    if forbidden := [(words, rule) for rule in binding if (words := _refusal(rule, pushed))]:
        pages = ", ".join(f"{page}/{number}" for number in sorted({rule.ruleset_id for _, rule in forbidden}))
        why = "; ".join(dict.fromkeys(words for words, _ in forbidden))
        repair = f"Exclude the branch from the ruleset, or let agent-fix bypass it: {pages}"
        return Finding("rulesets", "not ok", f"{pushed.branch}: {why}.", repair)
    if unclear := [words for rule in binding if (words := _unclear(rule, pushed))]:
        return Finding("rulesets", "cannot tell", f"{pushed.branch}: {'; '.join(unclear)}.", f"Look at {page}")
    limits = "".join(f" But {LIMITING_RULES[rule.type]}." for rule in binding if rule.type in LIMITING_RULES)
    return Finding("rulesets", "ok", f"None forbids a push to {pushed.branch}.{limits}")


def branch_protections(branch: str, rules: Sequence[Protection] | Refused, *, complete: bool, page: str) -> Finding:
    """The same of branch protection rules, the older kind; only to an administrator is the list surely `complete`."""
    if isinstance(rules, Refused):
        if rules.is_about_the_plan:
            return Finding("branch protection", "ok", "This repository's plan has none.")
        words = f"Only an administrator's token shows the branch protection rules for {branch}."
        return Finding(
            "branch protection", "cannot tell", words, f"Does one for `agent-fix/**` or `**/*` stand at {page}?"
        )
    matching = [rule for rule in rules if _matches(rule.pattern, branch)]
    if forbidden := [f"{rule.pattern}: {words}" for rule in matching for words in _forbidden(rule)]:
        repair = f"Narrow the pattern, or let agent-fix bypass it: {page}"
        return Finding("branch protection", "not ok", f"{'; '.join(forbidden)}.", repair)
    if not complete and not rules:
        return branch_protections(branch, Refused(""), complete=False, page=page)
    limits = (
        " But `/agent rebase` cannot push its merge." if any(rule.requires_linear_history for rule in matching) else ""
    )
    return Finding("branch protection", "ok", f"No rule forbids a push to {branch}.{limits}")


def _forbidden(rule: Protection) -> list[str]:
    words = {
        "only some people and Apps may push; agent-fix has to be one of them": rule.restricts_pushes,
        "nobody may create such a branch": rule.blocks_creations and not rule.restricts_pushes,
        BLOCKING_RULES["required_signatures"]: rule.requires_commit_signatures,
        BLOCKING_RULES["pull_request"]: rule.requires_approving_reviews,
        BLOCKING_RULES["required_status_checks"]: rule.requires_status_checks,
        "the branch is locked": rule.lock_branch,
    }
    return [text for text, holds in words.items() if holds]


def _refusal(rule: api_models.BranchRule, pushed: OwnPush) -> str:
    """Why a rule refuses every push of ours; empty where it does not."""
    if rule.type in BLOCKING_RULES:
        return BLOCKING_RULES[rule.type]
    text = _asked_about(rule, pushed)
    if not text or _fits(rule, text) is not False:
        return ""
    return f"{text} does not fit {_pattern(rule)}"


def _asked_about(rule: api_models.BranchRule, pushed: OwnPush) -> str:
    """What of ours has to fit a rule's pattern; empty for a rule about anything else."""
    by = {"branch_name_pattern": pushed.branch}
    by |= dict.fromkeys(("commit_author_email_pattern", "committer_email_pattern"), pushed.email)
    return by.get(rule.type, "")


def _pattern(rule: api_models.BranchRule) -> str:
    parameters = rule.parameters or {}
    negated = "not " if parameters.get("negate") else ""
    return f"“{negated}{_words(str(parameters.get('operator')))} {parameters.get('pattern')}”"


def _fits(rule: api_models.BranchRule, text: str) -> bool | None:
    """Whether a text fits a rule's pattern; None where that cannot be told here."""
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
            except re.error:  # GitHub's regular expressions are not all Python's
                return None
    return None


def _unclear(rule: api_models.BranchRule, pushed: OwnPush) -> str:
    if text := _asked_about(rule, pushed):
        return "" if _fits(rule, text) else f"does {text} fit {_pattern(rule)}?"
    if rule.type == "commit_message_pattern":
        return f"commit messages have to fit {_pattern(rule)}"
    if rule.type in RULES_ABOUT_FILES:
        return f"a rule about files ({_words(rule.type)}) may refuse a change"
    known = rule.type in LIMITING_RULES or rule.type in HARMLESS_RULES
    return "" if known else f"a rule that agent-fix does not know ({_words(rule.type)})"


def _matches(pattern: str, branch: str) -> bool:
    """As GitHub does: `*` stops at a slash, `**/` does not (Ruby's File.fnmatch with FNM_PATHNAME)."""
    parts = re.split(r"(\*\*/|\*+|\?|\[[^\]]*\])", pattern)
    special = {"**/": "(?:.*/)?", "?": "[^/]"}
    regex = "".join(
        special.get(part)
        or ("[^/]*" if part.startswith("*") else part.replace("[!", "[^") if part.startswith("[") else re.escape(part))
        for part in parts
        if part
    )
    return re.fullmatch(regex, branch) is not None


def _words(name: str) -> str:
    return name.replace("_", " ")


def _listed(permissions: Grant) -> str:
    """`checks, contents: write; actions: read`."""
    groups = {
        access: ", ".join(_words(name) for name, each in sorted(permissions.items()) if each == access)
        for access in ("write", "read")
    }
    return "; ".join(f"{names}: {access}" for access, names in groups.items() if names)
