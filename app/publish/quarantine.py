"""What leaves is looked through for our own secrets first; where one is found, nothing of it leaves (SECURITY S11)."""

import logging
from collections.abc import Iterable

from app.errors import AgentFixError, ExitCode
from app.patch import Patch
from app.publish.intent import Intent, OpenDraftPullRequest, OpenEarlyDraft, PushCommits
from app.redact import Redactor

HELD_BACK = (
    "**Held back.** What was to be posted here held something that must not leave this server. "
    "Nothing of it was posted; the server's log names the job."
)
_TEXTS = ("title", "body", "summary", "section", "branch")

logger = logging.getLogger(__name__)


class Quarantined(AgentFixError):  # noqa: N818  # what happened to it
    """It held one of our secrets. Never redacted and posted: who hid one may have hidden more."""

    def __init__(self) -> None:
        super().__init__(
            "The change held something that must not leave this server; nothing of it was published.",
            code=ExitCode.OUTPUT,
            hint="The server's log names the job. Its operator should look at the job's steps.",
        )


class Quarantine:
    """Looks through everything that goes out."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def checked(self, job: str, intent: Intent) -> Intent:
        """The intent as it may be carried out: with a fixed text where its own may not leave.

        Raises Quarantined where there is no saying it otherwise: of a branch and its pull request.
        """
        texts = [text for name in _TEXTS if isinstance(text := getattr(intent, name, None), str)]
        if isinstance(intent, OpenDraftPullRequest | PushCommits):
            self.refuse(job, [*texts, intent.recipe.message])
            return intent
        if isinstance(intent, OpenEarlyDraft):
            self.refuse(job, texts)
            return intent
        if not self._found(job, intent.kind, texts):
            return intent
        return intent.model_copy(update=_held_back(intent))

    def refuse(self, job: str, contents: Iterable[str | bytes]) -> None:
        """Raises Quarantined where one of these holds a secret of ours."""
        if self._found(job, "commit", contents):
            raise Quarantined

    def refuse_patch(self, job: str, patch: Patch) -> None:
        contents = (change.content for change in patch.changes if change.content is not None)
        self.refuse(job, [*patch.paths(), *contents])

    def _found(self, job: str, kind: str, contents: Iterable[str | bytes]) -> bool:
        if not any(self._redactor.found(content) for content in contents):
            return False
        logger.error("security: one of our secrets was to leave, and was held back", extra={"job": job, "kind": kind})
        return True


def _held_back(intent: Intent) -> dict[str, str]:
    fixed = dict.fromkeys(("body", "summary", "section"), HELD_BACK) | {"title": "Held back"}
    return {name: text for name, text in fixed.items() if name in type(intent).model_fields}
