"""What we ask of GitHub before and while a job works: who may, what was written when, how the checks ended."""

from datetime import datetime

from app.forge.facts import (
    Actor,
    ChangedFile,
    CommentFacts,
    IssueFacts,
    Permission,
    PullRequestFacts,
    RepositoryFacts,
    ReviewFacts,
)
from app.forge.github import wire
from app.forge.github.calls import (
    GET_COMMIT,
    GET_CONTENT,
    GET_ISSUE,
    GET_OTHER_APP,
    GET_PERMISSION,
    GET_PULL,
    GET_REF,
    GET_REPOSITORY,
    GET_REPOSITORY_BY_ID,
    GET_USER_BY_ID,
    LIST_ISSUE_COMMENTS,
    LIST_ISSUES,
    LIST_MATCHING_REFS,
    LIST_PULL_FILES,
    LIST_PULLS,
    LIST_REVIEWS,
    SEARCH_ISSUES,
)
from app.forge.github.door import Door
from app.forge.github.line import Missing
from app.forge.github.registration import repository_facts
from app.forge.github.talk import GHOST, review_facts
from app.task import Person

_PERMISSIONS: dict[str, Permission] = {"admin": "admin", "write": "write", "read": "read"}


class Reader:
    """Facts of one repository."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def repository(self) -> RepositoryFacts:
        return repository_facts(await self._door.read(wire.Repository, GET_REPOSITORY))

    async def whereabouts(self) -> RepositoryFacts:
        """The repository by its number, whatever it is called by now."""
        return repository_facts(await self._door.read(wire.Repository, GET_REPOSITORY_BY_ID, self._door.repository.id))

    async def installation(self) -> int | None:
        """The installation that this repository is in, as GitHub says; None where there is none, or it is suspended."""
        repository = self._door.repository
        return await self._door.presence.serving(repository.owner, repository.name)

    async def actor(self, user: int) -> Actor:
        """What an account may do here, asked by its number: a login can change hands between two requests."""
        account = await self._door.read(wire.Account, GET_USER_BY_ID, user)
        found = await self._door.find(wire.Collaborator, GET_PERMISSION, account.login)
        same = found is not None and found.user is not None and found.user.id == user == account.id
        permission = _PERMISSIONS.get(found.permission, "none") if found and same else "none"
        address = f"{user}+{account.login}@{self._door.app.host.noreply}"
        person = Person(name=account.name or account.login, email=address)
        return Actor(id=user, login=account.login, kind=account.type, permission=permission, person=person)

    async def application(self, slug: str) -> int | None:
        """The number of another App; None where it is somebody's private one, or gone."""
        try:
            return (await self._door.read(wire.AppIdentity, GET_OTHER_APP, slug)).id
        except Missing:
            return None

    async def issue(self, number: int) -> IssueFacts | None:
        found = await self._door.find(wire.Issue, GET_ISSUE, number)
        return _issue(found) if found else None

    async def labelled(self, label: str) -> tuple[IssueFacts, ...]:
        """Open issues and pull requests with this label, the longest untouched first."""
        params = {"labels": label, "state": "open", "sort": "updated", "direction": "asc"}
        return tuple(_issue(item) for item in await self._door.pages(wire.Issue, LIST_ISSUES, params=params))

    async def searched(self, query: str) -> tuple[IssueFacts, ...]:
        """At most a hundred open issues of this repository that GitHub's search finds, in its order.

        `sort:reactions-+1-desc` and kin are read here: the API takes them beside the query.
        """
        words = query.split()
        sort = next((word for word in words if word.startswith("sort:")), "").removeprefix("sort:")
        order = "asc" if sort.endswith("-asc") else "desc"
        beside = {"sort": sort.removesuffix(f"-{order}"), "order": order} if sort else {}
        repository = self._door.repository
        asked = [word for word in words if not word.startswith(("sort:", "repo:", "org:", "user:"))]
        text = " ".join([*asked, f"repo:{repository.owner}/{repository.name}", "is:issue", "is:open"])
        found = await self._door.read(wire.Searched, SEARCH_ISSUES, params={"q": text, "per_page": 100, **beside})
        return tuple(_issue(item) for item in found.items)

    async def branches(self, prefix: str) -> tuple[str, ...]:
        """Branches whose names begin so."""
        found = await self._door.pages(wire.Reference, LIST_MATCHING_REFS, f"heads/{prefix}")
        return tuple(item.ref.removeprefix("refs/heads/") for item in found)

    async def comments(self, number: int, before: datetime) -> tuple[CommentFacts, ...]:
        """Comments that stood, in these very words, before that moment."""
        found = await self._door.pages(wire.Comment, LIST_ISSUE_COMMENTS, number)
        return tuple(_comment(item) for item in found if max(item.created_at, item.updated_at) < before)

    async def pull_request(self, number: int) -> PullRequestFacts | None:
        found = await self._door.find(wire.PullRequest, GET_PULL, number)
        return pull_request_facts(found) if found else None

    async def pull_request_of(self, branch: str) -> PullRequestFacts | None:
        """The open pull request of a branch of this repository, else the newest closed one."""
        params = {"head": f"{self._door.repository.owner}:{branch}", "state": "all"}
        found = await self._door.pages(wire.PullRequest, LIST_PULLS, params=params)
        same = [item for item in found if item.head.ref == branch and self._is_ours(item)]
        same.sort(key=lambda item: (item.state == "open", item.number))
        return pull_request_facts(same[-1]) if same else None

    async def reviews(self, number: int, before: datetime | None = None) -> tuple[ReviewFacts, ...]:
        """Reviews submitted before that moment, or all."""
        found = await self._door.pages(wire.Review, LIST_REVIEWS, number)
        submitted = (facts for item in found if (facts := review_facts(item)) is not None)
        return tuple(facts for facts in submitted if before is None or facts.submitted_at < before)

    async def changed_files(self, number: int) -> tuple[ChangedFile, ...]:
        found = await self._door.pages(wire.File, LIST_PULL_FILES, number)
        return tuple(
            ChangedFile(
                path=item.filename,
                status=item.status,
                additions=item.additions,
                deletions=item.deletions,
                diff=item.patch or "",
            )
            for item in found
        )

    async def file(self, path: str, ref: str = "") -> bytes | None:
        """A file's bytes at the default branch, or at `ref`."""
        return await self._door.content(GET_CONTENT, path, params={"ref": ref} if ref else None)

    async def head(self, branch: str) -> str | None:
        """The commit that a branch is at."""
        found = await self._door.find(wire.Reference, GET_REF, f"heads/{branch}")
        return found.object.sha if found else None

    async def author_address(self, commit: str) -> str:
        """The author's address of a commit, as the commit says."""
        found = await self._door.read(wire.Commit, GET_COMMIT, commit)
        return (found.commit.author.email if found.commit.author else None) or ""

    def _is_ours(self, item: wire.PullRequest) -> bool:
        return item.head.repo is not None and item.head.repo.id == self._door.repository.id


def pull_request_facts(found: wire.PullRequest) -> PullRequestFacts:
    return PullRequestFacts(
        number=found.number,
        url=found.html_url,
        title=found.title,
        body=found.body or "",
        author=(found.user or GHOST).id,
        author_name=(found.user or GHOST).login,
        open=found.state == "open",
        merged=found.merged_at is not None,
        draft=found.draft,
        head_branch=found.head.ref,
        head=found.head.sha,
        head_repository=found.head.repo.id if found.head.repo else None,
        base_branch=found.base.ref,
        base=found.base.sha,
        mergeable=found.mergeable,
        updated_at=found.updated_at,
    )


def _issue(found: wire.Issue) -> IssueFacts:
    return IssueFacts(
        number=found.number,
        title=found.title,
        body=found.body or "",
        author=(found.user or GHOST).id,
        open=found.state == "open",
        locked=found.locked,
        labels=tuple(label if isinstance(label, str) else label.name for label in found.labels),
        assignees=tuple(account.id for account in found.assignees or ()),
        pull_request=found.pull_request is not None,
        updated_at=found.updated_at,
    )


def _comment(found: wire.Comment) -> CommentFacts:
    account = found.user or GHOST
    return CommentFacts(
        id=found.id,
        author=account.id,
        author_name=account.login,
        bot=account.type == "Bot",
        body=found.body or "",
        created_at=found.created_at,
        url=found.html_url,
        kind=account.type,
    )
