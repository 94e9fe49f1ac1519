"""Searches everything that is published for our own secrets; if one is found, nothing is published (SECURITY S11)."""

import logging
from collections.abc import Iterable

from app.core.errors import AgentFixError, ExitCode
from app.core.patch import Patch
from app.core.redaction import Redactor
from app.publish.effects import Effect, OpenDraftPullRequest, OpenEarlyDraft, PushCommits, SendNotification

HELD_BACK = (
    "**Held back.** The text for this comment contained something that must not leave this server. "
    "None of it was posted; the server's log names the job."
)
_TEXTS = ("title", "body", "summary", "section", "branch")

logger = logging.getLogger(__name__)


class SecretFound(AgentFixError):  # noqa: N818  # what happened to it
    """It contained one of our secrets. Never redacted and posted, because more may be hidden."""

    def __init__(self) -> None:
        super().__init__(
            "The change contained something that must not leave this server; none of it was published.",
            code=ExitCode.OUTPUT,
            hint="The server's log names the job. The operator should review the job's steps.",
        )


class SecretScan:
    """Searches everything that is published."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def checked(self, job: str, effect: Effect) -> Effect:
        """The effect, with a fixed text if its own has a secret.

        Raises SecretFound if there is no replacement: for a branch and its pull request.
        """
        names = type(effect).model_fields if isinstance(effect, SendNotification) else _TEXTS
        texts = [text for name in names if isinstance(text := getattr(effect, name, None), str)]
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
        """Raises SecretFound if one of these contains a secret of ours."""
        if self._found(job, "commit", contents):
            raise SecretFound

    def refuse_patch(self, job: str, patch: Patch) -> None:
        contents = (change.content for change in patch.changes if change.content is not None)
        self.refuse(job, [*patch.paths(), *contents])

    def _found(self, job: str, kind: str, contents: Iterable[str | bytes]) -> bool:
        if not any(self._redactor.found(content) for content in contents):
            return False
        logger.error(
            "security: an effect contained one of our secrets and was held back", extra={"job": job, "kind": kind}
        )
        return True


def _held_back(effect: Effect) -> dict[str, str]:
    fixed = dict.fromkeys(("body", "summary", "section"), HELD_BACK) | {"title": "Held back"}
    if isinstance(effect, SendNotification):
        fixed |= dict.fromkeys(("repository", "page", "pull_request", "verdict", "cost"), "")
    return {name: text for name, text in fixed.items() if name in type(effect).model_fields}
