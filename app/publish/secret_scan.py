"""Searches everything that is published for our own secrets; if one is found, nothing is published (SECURITY S11)."""

import logging
from collections.abc import Iterable, Iterator, Mapping

from app.core.errors import AgentFixError, ExitCode
from app.core.patch import Patch
from app.core.redaction import Finding, Redactor
from app.publish.effects import (
    MAX_TITLE,
    Effect,
    OpenDraftPullRequest,
    OpenEarlyDraft,
    PushCommits,
    SendNotification,
    UpdateVerdict,
)

_REASONS: Mapping[Finding, str] = {
    "secret": "contained something that must not leave this server",
    "too much to search": "contained more encoded or compressed data than is searched for secrets",
}
_HELD_BACK = "**Held back.** The text for this comment {}. None of it was posted; the server's log names the job."
HELD_BACK = _HELD_BACK.format(_REASONS["secret"])
logger = logging.getLogger(__name__)


class SecretFound(AgentFixError):  # noqa: N818  # what happened to it
    """It contained one of our secrets, or may. Never redacted and posted, because more may be hidden."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(
            f"The change {_REASONS[finding]}; none of it was published.",
            code=ExitCode.OUTPUT,
            hint="The server's log names the job. The operator should review the job's steps.",
        )


class SecretScan:
    """Searches everything that is published."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def checked(self, job: str, effect: Effect) -> Effect:
        """The effect, with fixed texts if one of its own has a secret.

        Raises SecretFound if there is no replacement: for a branch and its pull request, and for names.
        """
        if isinstance(effect, OpenDraftPullRequest | OpenEarlyDraft | PushCommits):
            self.refuse(job, _strings(effect.model_dump()))
            return effect
        finding = self._found(job, effect.kind, _strings(effect.model_dump()))
        if not finding:
            return effect
        replaced = effect.model_copy(update=_fixed_texts(effect, _HELD_BACK.format(_REASONS[finding])))
        self.refuse(job, _strings(replaced.model_dump()))
        return replaced

    def refuse(self, job: str, contents: Iterable[str | bytes]) -> None:
        """Raises SecretFound if one of these contains a secret of ours, or may."""
        if finding := self._found(job, "commit", contents):
            raise SecretFound(finding)

    def refuse_patch(self, job: str, patch: Patch) -> None:
        contents = (change.content for change in patch.changes if change.content is not None)
        self.refuse(job, [*patch.paths(), *contents])

    def _found(self, job: str, kind: str, contents: Iterable[str | bytes]) -> Finding:
        finding: Finding = next(filter(None, map(self._redactor.found, contents)), "")
        if finding:
            what = "one of our secrets" if finding == "secret" else finding
            logger.error("security: an effect contained %s and was held back", what, extra={"job": job, "kind": kind})
        return finding


def _strings(value: object) -> Iterator[str]:
    """Every string in a dumped effect, however deep."""
    match value:
        case str():
            yield value
        case dict():
            for inner in value.values():
                yield from _strings(inner)
        case list() | tuple():
            for inner in value:
                yield from _strings(inner)


def _fixed_texts(effect: Effect, text: str) -> dict[str, object]:
    """A replacement for each text of limited length; of a notification also for everything that may be empty."""
    fixed = dict[str, object]()
    for name, field in type(effect).model_fields.items():
        length = next((limit.max_length for limit in field.metadata if hasattr(limit, "max_length")), None)
        if length is not None:
            fixed[name] = "Held back" if length <= MAX_TITLE else text
    if isinstance(effect, UpdateVerdict):
        fixed["shorter"] = ()
    if isinstance(effect, SendNotification):
        fixed |= dict.fromkeys(("repository", "page", "pull_request", "verdict", "cost"), "")
    return fixed
