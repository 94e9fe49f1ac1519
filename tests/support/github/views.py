"""The world as GitHub's answers: one function for each kind of thing, each in the shape that githubkit expects."""

from datetime import datetime
from typing import Any

from githubkit_schemas.latest import models

from tests.support.github.shapes import shaped
from tests.support.github.world import (
    Check,
    Comment,
    Delivery,
    Installation,
    Issue,
    Pull,
    Repo,
    Review,
    Token,
    User,
    World,
)
from tests.support.repositories import git

SITE = "https://github.example"


def when(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def user_view(user: User) -> dict[str, Any]:
    return shaped(models.SimpleUser, id=user.id, login=user.login, type=user.type, html_url=f"{SITE}/{user.login}")


def account_view(user: User) -> dict[str, Any]:
    return shaped(models.PublicUser, id=user.id, login=user.login, type=user.type, name=user.name)


def permission_view(repo: Repo, user: User) -> dict[str, Any]:
    role = repo.collaborators.get(user.id, "none")
    legacy = {"maintain": "write", "triage": "read"}.get(role, role)
    person = shaped(models.Collaborator, id=user.id, login=user.login, type=user.type)
    return shaped(models.RepositoryCollaboratorPermission, permission=legacy, role_name=role, user=person)


def rights_view(repo: Repo, token: Token) -> dict[str, Any]:
    """What the account behind a token may do; of an App's token GitHub says no to everything (a guess)."""
    return role_view(repo.collaborators.get(token.user.id, "read") if token.user else "none")


def role_view(role: str) -> dict[str, bool]:
    """A role as the five things that GitHub tells of it; each role may do what the lower ones may."""
    roles = ("pull", "triage", "push", "maintain", "admin")
    held = {"none": 0, "read": 1, "triage": 2, "write": 3, "maintain": 4, "admin": 5}[role]
    return {name: number < held for number, name in enumerate(roles)}


def repo_view(repo: Repo, model: Any = models.FullRepository, rights: dict[str, Any] | None = None) -> dict[str, Any]:
    return shaped(
        model,
        id=repo.id,
        name=repo.name,
        full_name=repo.full_name,
        owner=user_view(repo.owner),
        default_branch="main",
        archived=repo.archived,
        private=repo.private,
        has_issues=repo.has_issues,
        **({} if rights is None else {"permissions": rights}),
    )


def issue_view(repo: Repo, issue: Issue) -> dict[str, Any]:
    return _issue_view(models.Issue, models.IssuePropLabelsItemsOneof1, repo, issue)


def found_view(repo: Repo, issue: Issue) -> dict[str, Any]:
    """As a search tells of it."""
    model, label = models.IssueSearchResultItem, models.IssueSearchResultItemPropLabelsItems
    return _issue_view(model, label, repo, issue, score=1.0, author_association="NONE")


def _issue_view(model: Any, label: Any, repo: Repo, issue: Issue, **optional: Any) -> dict[str, Any]:
    if issue.pull is not None:
        optional["pull_request"] = shaped(models.IssuePropPullRequest)
    return shaped(
        model,
        id=issue.number,
        node_id=f"I_{repo.id}-{issue.number}",
        number=issue.number,
        title=issue.title,
        body=issue.body,
        user=user_view(issue.user),
        state=issue.state,
        locked=issue.locked,
        labels=[shaped(label, name=name, color="ededed") for name in issue.labels],
        assignees=[user_view(user) for user in issue.assignees],
        comments=len(issue.comments),
        html_url=f"{SITE}/{repo.full_name}/issues/{issue.number}",
        repository_url=f"{SITE}/api/repos/{repo.full_name}",
        created_at=when(issue.updated_at),
        updated_at=when(issue.updated_at),
        **optional,
    )


def label_view(name: str) -> dict[str, Any]:
    return shaped(models.Label, name=name, color="ededed")


def _via(comment: Comment) -> dict[str, Any]:
    if comment.app is None:
        return {}
    return {"performed_via_github_app": shaped(models.Integration, id=comment.app, slug="an-app", name="an app")}


def comment_view(repo: Repo, issue: Issue, comment: Comment) -> dict[str, Any]:
    return shaped(
        models.IssueComment,
        id=comment.id,
        node_id=f"IC_{comment.id}",
        issue_url=f"{SITE}/api/repos/{repo.full_name}/issues/{issue.number}",
        body=comment.body,
        user=user_view(comment.user),
        created_at=when(comment.created_at),
        updated_at=when(comment.updated_at),
        html_url=f"{SITE}/{repo.full_name}/issues/{issue.number}#issuecomment-{comment.id}",
        **_via(comment),
    )


def inline_view(repo: Repo, number: int, comment: Comment) -> dict[str, Any]:
    optional: dict[str, Any] = {"in_reply_to_id": comment.in_reply_to} if comment.in_reply_to else {}
    optional |= {"line": comment.line} if comment.line else {}
    return shaped(
        models.PullRequestReviewComment,
        id=comment.id,
        node_id=f"PRRC_{comment.id}",
        body=comment.body,
        path=comment.path,
        diff_hunk="@@ -1 +1 @@",
        pull_request_review_id=comment.review,
        pull_request_url=f"{SITE}/api/repos/{repo.full_name}/pulls/{number}",
        user=user_view(comment.user),
        created_at=when(comment.created_at),
        updated_at=when(comment.updated_at),
        html_url=f"{SITE}/{repo.full_name}/pull/{number}#discussion_r{comment.id}",
        **optional,
    )


def review_view(review: Review) -> dict[str, Any]:
    return shaped(
        models.PullRequestReview,
        id=review.id,
        node_id=f"PRR_{review.id}",
        user=user_view(review.user),
        body=review.body,
        state=review.state,
        submitted_at=when(review.submitted_at),
    )


def requested_view(world: World, issue: Issue) -> dict[str, Any]:
    people = [user for user in world.users.values() if user.login in issue.asked]
    slugs = [name.partition("/")[2] for name in issue.asked if "/" in name]
    teams = [shaped(models.Team, slug=slug, name=slug) for slug in slugs]
    return shaped(models.PullRequestReviewRequest, users=[user_view(user) for user in people], teams=teams)


def _pull_values(repo: Repo, issue: Issue, pull: Pull) -> dict[str, Any]:
    return {
        "id": issue.number,
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "state": issue.state,
        "draft": pull.draft,
        "user": user_view(issue.user),
        "updated_at": when(issue.updated_at),
        "merged_at": when(pull.merged_at) if pull.merged_at else None,
        "html_url": f"{SITE}/{repo.full_name}/pull/{issue.number}",
    }


def _side(model: Any, inner: Any, repo: Repo, ref: str, fork: int = 0) -> dict[str, Any]:
    nested = shaped(inner, id=fork or repo.id, name=repo.name, full_name=repo.full_name, owner=user_view(repo.owner))
    label, tip = f"{repo.owner.login}:{ref}", repo.branches.get(ref, "0" * 40)
    return shaped(model, ref=ref, sha=tip, label=label, user=user_view(repo.owner), repo=nested)


def pull_view(repo: Repo, issue: Issue) -> dict[str, Any]:
    assert issue.pull is not None
    head = _side(models.PullRequestPropHead, models.Repository, repo, issue.pull.head, issue.pull.fork)
    base = _side(models.PullRequestPropBase, models.Repository, repo, issue.pull.base)
    values = _pull_values(repo, issue, issue.pull)
    values |= {"merged": issue.pull.merged_at is not None, "mergeable": issue.pull.mergeable}
    return shaped(models.PullRequest, head=head, base=base, **values)


def simple_pull_view(repo: Repo, issue: Issue) -> dict[str, Any]:
    assert issue.pull is not None
    head = _side(models.PullRequestSimplePropHead, models.Repository, repo, issue.pull.head, issue.pull.fork)
    base = _side(models.PullRequestSimplePropBase, models.Repository, repo, issue.pull.base)
    return shaped(models.PullRequestSimple, head=head, base=base, **_pull_values(repo, issue, issue.pull))


def files_view(repo: Repo, pull: Pull) -> list[dict[str, Any]]:
    branches = repo.branches
    lines = git(repo.path, "diff", "--numstat", f"{branches[pull.base]}...{branches[pull.head]}").splitlines()
    files = []
    for line in lines:
        added, deleted, name = line.split("\t")
        diff = git(repo.path, "diff", f"{branches[pull.base]}...{branches[pull.head]}", "--", name)
        counts: dict[str, Any] = {
            "additions": int(added),
            "deletions": int(deleted),
            "changes": int(added) + int(deleted),
        }
        patch = diff[diff.index("@@") :]
        address = f"{SITE}/{repo.full_name}/raw/{branches[pull.head]}/{name}"
        counts |= {"patch": patch, "raw_url": address, "blob_url": address}
        files.append(shaped(models.DiffEntry, filename=name, status="modified", **counts))
    return files


def ref_view(branch: str, commit: str) -> dict[str, Any]:
    target = shaped(models.GitRefPropObject, sha=commit, type="commit")
    return shaped(models.GitRef, ref=f"refs/heads/{branch}", object=target)


def commit_view(repo: Repo, sha: str) -> dict[str, Any]:
    name, email = git(repo.path, "show", "-s", "--format=%an%n%ae", sha).splitlines()
    author = shaped(models.GitUser, name=name, email=email)
    return shaped(models.Commit, sha=sha, commit=shaped(models.CommitPropCommit, author=author))


def check_view(check: Check) -> dict[str, Any]:
    app = shaped(models.Integration, id=check.app_id, slug=check.app, name=check.app)
    output = shaped(models.CheckRunPropOutput, title=check.title, summary=check.summary)
    return shaped(
        models.CheckRun,
        id=check.id,
        name=check.name,
        head_sha=check.head_sha,
        status=check.status,
        conclusion=check.conclusion,
        external_id=check.external_id,
        html_url=f"{SITE}/checks/{check.id}",
        output=output,
        app=app,
    )


def status_view(repo: Repo, sha: str) -> dict[str, Any]:
    statuses = [
        shaped(models.SimpleCommitStatus, context=context, state=state)
        for commit, context, state in repo.statuses
        if commit == sha
    ]
    nested = shaped(models.MinimalRepository, id=repo.id, name=repo.name)
    return shaped(models.CombinedCommitStatus, sha=sha, statuses=statuses, total_count=len(statuses), repository=nested)


def reaction_view(world: World, number: int, user: int, content: str) -> dict[str, Any]:
    return shaped(models.Reaction, id=number, content=content, user=user_view(world.users[user]))


def app_view(world: World) -> dict[str, Any]:
    slug = world.bot.login.removesuffix("[bot]")
    return shaped(models.Integration, id=4_711, slug=slug, name="agent-fix", html_url=f"{SITE}/apps/{slug}")


def installation_view(installation: Installation) -> dict[str, Any]:
    suspended = when(datetime.fromtimestamp(0)) if installation.suspended else None  # noqa: DTZ006  # only that it is set
    return shaped(
        models.Installation,
        id=installation.id,
        app_id=4_711,
        suspended_at=suspended,
        permissions=dict(installation.permissions),
        events=list(installation.events),
        html_url=f"{SITE}/settings/installations/{installation.id}",
    )


def token_view(text: str, token: Token) -> dict[str, Any]:
    permissions = dict(token.permissions)
    return shaped(models.InstallationToken, token=text, expires_at=when(token.expires_at), permissions=permissions)


def delivery_view(delivery: Delivery) -> dict[str, Any]:
    return shaped(
        models.HookDeliveryItem,
        id=delivery.id,
        guid=delivery.guid,
        event=delivery.event,
        action=delivery.action,
        delivered_at=when(delivery.delivered_at),
        status_code=delivery.status,
        status=delivery.words or _words(delivery.status),
        redelivery=delivery.redelivery,
    )


def _words(status: int) -> str:
    return "OK" if 200 <= status < 300 else f"Invalid HTTP Response: {status}" if status else "pending"
