"""Finds secrets in added lines, and files that hold secrets by their name; never repeats a value."""

import re
from pathlib import PurePosixPath

from app.core.redaction import find_secrets
from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate

_SECRET_FILES = re.compile(
    r"^(?:\.env(?:\.(?!example|sample|template|dist|test)[\w.-]+)?|\.netrc|\.pgpass|\.htpasswd|id_(?:rsa|dsa|ecdsa|ed25519)"
    r"|\.git-credentials|.*\.(?:pfx|p12|jks|keystore|kdbx))$",
    re.IGNORECASE,
)


def secret_lines(candidate: CandidatePatch) -> GateResult:
    """Blocks with type, path and line."""
    blocked = []
    for delta in candidate.deltas:
        if delta.created and _SECRET_FILES.match(PurePosixPath(delta.path).name):
            blocked.append(f"{displayed_path(delta.path)}: files with this name usually hold secrets")
        blocked += _found(delta)
    return gate("secrets", blocked=blocked)


def _found(delta: ChangedPath) -> list[str]:
    if delta.new is None:
        return []
    if delta.text is None:  # binary, or a link's target: every line of it is new
        findings = find_secrets(delta.new.decode(errors="replace"))
        return [f"{displayed_path(delta.path)}: {finding.kind}" for finding in findings]
    added = {number for number, _ in delta.added}
    findings = find_secrets(delta.text) if added else ()
    return [
        f"{displayed_path(delta.path)}:{finding.line}: {finding.kind}" for finding in findings if finding.line in added
    ]
