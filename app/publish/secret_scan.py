"""Searches everything that is published for our own secrets; if one is found, nothing is published (SECURITY S11)."""

import logging
from collections.abc import Iterable

from app.core.errors import AgentFixError, ExitCode
from app.core.patch import Patch
from app.core.redaction import Redactor, each_text, mask_secrets
from app.publish.effects import (
    MAX_TITLE,
    AddFollowUpSection,
    Effect,
    OpenDraftPullRequest,
    OpenEarlyDraft,
    PushCommits,
    SendNotification,
    UpdateVerdict,
)

_REASON = "contained something that must not leave this server"
HELD_BACK = (
    f"**Held back.** The text for this comment {_REASON}. None of it was posted; the server's log names the job."
)
logger = logging.getLogger(__name__)


class SecretFound(AgentFixError):  # noqa: N818  # what happened to it
    """It contained one of our secrets. Never redacted and posted, because more may be hidden."""

    def __init__(self) -> None:
        super().__init__(
            f"The change {_REASON}; none of it was published.",
            code=ExitCode.OUTPUT,
            hint="The server's log names the job. The operator should review the job's steps.",
        )


class SecretScan:
    """Searches everything that is published."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def checked(self, job: str, effect: Effect) -> Effect:
        """The effect, without what looks like anybody's secret; with fixed texts if one of its own has one of ours.

        Raises SecretFound if there is no replacement: for a branch and its pull request, and for names.
        """
        if isinstance(effect, OpenDraftPullRequest | OpenEarlyDraft | PushCommits):
            self.refuse(job, each_text(effect.model_dump()))
            return effect
        if not self._found(job, effect.kind, each_text(effect.model_dump())):
            masked: dict[str, object] = {name: mask_secrets(getattr(effect, name)) for name in _limits(effect)}
            if isinstance(effect, UpdateVerdict | AddFollowUpSection):
                masked["shorter"] = tuple(map(mask_secrets, effect.shorter))
            if isinstance(effect, AddFollowUpSection):
                masked["verifications"] = tuple(map(mask_secrets, effect.verifications))
            return effect.model_copy(update=masked)
        replaced = effect.model_copy(update=_fixed_texts(effect))
        self.refuse(job, each_text(replaced.model_dump()))
        return replaced

    def refuse(self, job: str, contents: Iterable[str | bytes]) -> None:
        """Raises SecretFound if one of these contains a secret of ours."""
        if self._found(job, "commit", contents):
            raise SecretFound

    def refuse_patch(self, job: str, patch: Patch) -> None:
        contents = (change.content for change in patch.changes if change.content is not None)
        self.refuse(job, [*patch.paths(), *contents])

    def _found(self, job: str, kind: str, contents: Iterable[str | bytes]) -> bool:
        found = any(map(self._redactor.found, contents))
        if found:
            extra = {"job": job, "kind": kind}
            logger.error("security: an effect contained one of our secrets and was held back", extra=extra)
        return found


def _limits(effect: Effect) -> dict[str, int]:
    """The texts of limited length, with their limits."""
    return {
        name: limit.max_length
        for name, field in type(effect).model_fields.items()
        for limit in field.metadata
        if hasattr(limit, "max_length")
    }


def _fixed_texts(effect: Effect) -> dict[str, object]:
    """A replacement for each text of limited length; of a notification also for everything that may be empty."""
    fixed = dict[str, object](
        {name: "Held back" if length <= MAX_TITLE else HELD_BACK for name, length in _limits(effect).items()}
    )
    if isinstance(effect, UpdateVerdict | AddFollowUpSection):
        fixed["shorter"] = ()
    if isinstance(effect, AddFollowUpSection):
        fixed["verifications"] = (HELD_BACK,)
    if isinstance(effect, SendNotification):
        fixed |= dict.fromkeys(("repository", "page", "pull_request", "verdict", "cost"), "")
    return fixed
