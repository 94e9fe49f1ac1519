"""A conversation on a forge kept in a directory of files, so that processes that die can share it."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

from app.core.errors import AgentFixError
from app.core.failpoints import failpoint
from app.github.base import CommentState, ForgeEffects, NewCheckRun, NewPullRequest, Reaction, ReactionTarget
from app.publish.effects import Effect
from app.publish.outbox import EffectClaim


class FileForge:
    """Looks first, as every forge does. Each effect appends a line, so that one made twice is seen."""

    def __init__(self, directory: Path, trouble: list[AgentFixError] | None = None) -> None:
        self._directory = directory
        self._trouble = trouble if trouble is not None else []

    def made(self, name: str) -> list[str]:
        path = self._directory / name
        return path.read_text().splitlines() if path.exists() else []

    def _make(self, name: str, content: str) -> str:
        if self._trouble:
            raise self._trouble.pop(0)
        failpoint("effect.before")
        if not self.made(name) or self.made(name)[-1] != content:
            with (self._directory / name).open("a") as file:
                file.write(f"{content}\n")
        failpoint("effect.after")
        return f"https://forge.example/{name}"

    async def ensure_branch(self, name: str, commit: str) -> str:
        self._make("branch", f"{name} {commit}")
        return name

    async def replace_branch(self, name: str, commit: str, ours: Collection[str]) -> str:
        self._make("branch", f"{name} {commit} {' '.join(ours)}")
        return name

    async def update_draft_status(self, branch: str, commit: str, amend: Callable[[str], str], *, close: bool) -> str:
        return self._make("draft", f"{branch} {commit} {' '.join(amend('').split())} {close}")

    async def advance_branch(self, name: str, commit: str, expected: str) -> str:
        self._make("branch", f"{name} {commit} {expected}")
        return name

    async def ensure_pull_request(self, wanted: NewPullRequest) -> str:
        return self._make("pull-request", f"{wanted.branch} {wanted.title}")

    async def ensure_comment(self, key: str, body: str, state: CommentState | None = None) -> str:
        return self._make(f"comment-{key.replace('/', '-')}", body)

    @property
    def page(self) -> str:
        return "https://forge.example/page"

    async def tip(self, branch: str) -> str:
        return ""

    def comparison(self, base: str, branch: str) -> str:
        return f"https://forge.example/{base}...{branch}"

    async def ensure_labels_and_reviewers(self, branch: str, labels: Iterable[str], reviewers: Sequence[str]) -> str:
        return self._make("review", f"{branch} {' '.join(labels)} {' '.join(reviewers)}")

    async def amend_pull_request(self, amend: Callable[[str], str]) -> str:
        return self._make("pull-request-body", " ".join(amend("").split()))

    async def ensure_reaction(self, target: ReactionTarget, content: Reaction) -> None:
        self._make("reaction", f"{target.kind} {target.id} {content}")

    async def ensure_labels(self, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
        self._make("labels", f"{' '.join(add)} -{' -'.join(remove)}")

    async def ensure_check_run(self, wanted: NewCheckRun) -> str:
        return self._make("check", f"{wanted.name} {wanted.commit} {wanted.conclusion}")

    async def ensure_reply(self, comment: int, key: str, body: str) -> str:
        return self._make(f"reply-{comment}", f"{key} {body}")

    async def ensure_resolved(self, thread: str) -> None:
        self._make("resolved", thread)


async def as_wished(claim: EffectClaim, _forge: ForgeEffects) -> Effect:
    """Grants everything."""
    return claim.effect
