"""Verifies that a delivery was signed with our secret: HMAC-SHA256 over the raw bytes, in constant time."""

import hashlib
import hmac
import re
from collections.abc import Sequence

_SHA256 = re.compile(r"sha256=([0-9a-f]{64})")


class SignatureCheck:
    """The signature of one body, computed while it arrives, for each valid secret."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._digests = [hmac.new(secret.encode(), digestmod=hashlib.sha256) for secret in secrets]

    def update(self, chunk: bytes) -> None:
        for digest in self._digests:
            digest.update(chunk)

    def matches(self, header: str) -> bool:
        """True if `X-Hub-Signature-256` matches. All secrets are compared, so timing does not reveal which one."""
        found = _SHA256.fullmatch(header)
        given = found[1] if found else ""
        right = False
        for digest in self._digests:
            right |= hmac.compare_digest(digest.hexdigest(), given)
        return right
