"""What leaves is looked through for our own secrets first; where one is found, nothing of it leaves (SECURITY S11)."""

import logging
from collections.abc import Iterable

from app.core.errors import AgentFixError, ExitCode
from app.core.patch import Patch
from app.core.redaction import Redactor
from app.publish.effects import Effect, OpenDraftPullRequest, OpenEarlyDraft, PushCommits

HELD_BACK = (
    "**Held back.** What was to be posted here held something that must not leave this server. "
    "Nothing of it was posted; the server's log names the job."
)
_TEXTS = ("title", "body", "summary", "section", "branch")

logger = logging.getLogger(__name__)


class SecretFound(AgentFixError):  # noqa: N818  # what happened to it
    """It held one of our secrets. Never redacted and posted: who hid one may have hidden more."""

    def __init__(self) -> None:
        super().__init__(
            "The change held something that must not leave this server; nothing of it was published.",
            code=ExitCode.OUTPUT,
            hint="The server's log names the job. Its operator should look at the job's steps.",
        )


class SecretScan:
    """Looks through everything that goes out."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def checked(self, job: str, effect: Effect) -> Effect:
        """The intent as it may be carried out: with a fixed text where its own may not leave.

        Raises Quarantined where there is no saying it otherwise: of a branch and its pull request.
        """
        texts = [text for name in _TEXTS if isinstance(text := getattr(effect, name, None), str)]
        if isinstance(effect, OpenDraftPullRequest | PushCommits):
            self.refuse(job, [*texts, effect.recipe.message])
            return effect
        if isinstance(effect, OpenEarlyDraft):
            self.refuse(job, texts)
            return effect
        if not self._found(job, effect.kind, texts):
            return effect
        return effect.model_copy(update=_held_back(effect))

    def refuse(self, job: str, contents: Iterable[str | bytes]) -> None:
        """Raises Quarantined where one of these holds a secret of ours."""
        if self._found(job, "commit", contents):
            raise SecretFound

    def refuse_patch(self, job: str, patch: Patch) -> None:
        contents = (change.content for change in patch.changes if change.content is not None)
        self.refuse(job, [*patch.paths(), *contents])

    def _found(self, job: str, kind: str, contents: Iterable[str | bytes]) -> bool:
        if not any(self._redactor.found(content) for content in contents):
            return False
        logger.error("security: one of our secrets was to leave, and was held back", extra={"job": job, "kind": kind})
        return True


def _held_back(effect: Effect) -> dict[str, str]:
    fixed = dict.fromkeys(("body", "summary", "section"), HELD_BACK) | {"title": "Held back"}
    return {name: text for name, text in fixed.items() if name in type(effect).model_fields}
