"""Who may come in: App signatures verified, tokens of both shapes with their repositories, permissions and end."""

import base64
import re
import secrets
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from app.github.calls import Call
from tests.support.github.rights import allows
from tests.support.github.world import Installation, Repo, Token, World

APP_ID = 4_711
NEVER_PUBLIC = ("/permission", "/logs")
"""Ends of paths that GitHub shows to nobody without a token, whose repository may be public."""


class AccessDenied(Exception):  # noqa: N818  # an answer
    """GitHub says no."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"message": message, "documentation_url": "https://docs.github.example", **extra}
        self.headers = dict(headers or {})


@cache
def app_key() -> tuple[str, str]:
    """The App's key pair, PEM, private first."""
    key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return private.decode(), public.decode()


class Authenticator:
    """Reads the Authorization header."""

    def __init__(self, world: World) -> None:
        self._world = world

    def app(self, header: str) -> None:
        """The App itself, by a signature that is neither from the future nor too long."""
        now = self._world.now.timestamp()
        try:
            claims = jwt.decode(
                header.removeprefix("Bearer "),
                app_key()[1],
                algorithms=["RS256"],
                options={"verify_exp": False, "verify_iat": False},
            )
        except jwt.PyJWTError as error:
            raise AccessDenied(401, "A JSON web token could not be decoded") from error
        if claims["iss"] != str(APP_ID):
            raise AccessDenied(401, "Integration not found")
        if claims["iat"] > now:
            raise AccessDenied(401, "'Issued at' claim ('iat') must be an Integer representing the time it was issued")
        if not now < claims["exp"] <= now + 600:
            raise AccessDenied(
                401, "'Expiration time' claim ('exp') must be a numeric value representing the future time"
            )

    def token(self, header: str) -> Token:
        """A token that is known, whole and not over."""
        scheme, _, value = header.partition(" ")
        if scheme.lower() == "basic":
            value = base64.b64decode(value).decode().removeprefix("x-access-token:")
        token = self._world.tokens.get(value)
        if token is None or token.revoked or token.expires_at <= self._world.now:
            raise AccessDenied(401, "Bad credentials")
        return token

    def use(self, header: str, call: Call) -> Token:
        """A token whose permissions suffice for this call."""
        token = self.token(header)
        if not allows(token.permissions, call):
            raise AccessDenied(403, "Resource not accessible by integration")
        return token

    def enter(self, header: str, repo: Repo, call: Call) -> Token:
        """A token that opens this repository for this call; without one everybody may read what is public."""
        if not header:
            return self._anybody(repo, call, AccessDenied(401, "Requires authentication"))
        token = self.token(header)
        installation = self._world.installations.get(token.installation)
        if installation is not None and repo.id not in token.repositories:
            return self._anybody(repo, call, AccessDenied(403, "Resource not accessible by integration"))
        if installation is None or repo.id not in installation.repositories:  # a guess for what is public
            raise AccessDenied(404, "Not Found")
        if installation.suspended:
            raise AccessDenied(403, "This installation has been suspended")
        self.use(header, call)
        if repo.private and "contents" not in token.permissions and re.search("/(commits|check-runs)", call.path):
            raise AccessDenied(403, "Resource not accessible by integration")  # a guess, the stricter of two
        if repo.archived and "write" in call.needs.values():
            raise AccessDenied(403, "Repository was archived so is read-only.")
        return token

    def _anybody(self, repo: Repo, call: Call, refusal: AccessDenied) -> Token:
        """GitHub's documentation, "Authenticating to the REST API": a private repository is a 404 and not a 403."""
        if repo.private:
            raise AccessDenied(404, "Not Found")
        if "write" in call.needs.values() or call.path.endswith(NEVER_PUBLIC):
            raise refusal
        return Token(0, frozenset({repo.id}), dict(call.needs), self._world.now)

    def mint(self, installation: Installation | None, wanted: Mapping[str, Any]) -> tuple[str, Token]:
        """A new token for part of what an installation has."""
        if installation is None:
            raise AccessDenied(404, "Not Found")
        if installation.suspended:
            raise AccessDenied(403, "This installation has been suspended")
        repositories = set(wanted.get("repository_ids") or installation.repositories)
        if names := wanted.get("repositories"):
            repositories = {repo.id for repo in self._world.repos.values() if repo.name in names}
        permissions = dict(wanted.get("permissions") or installation.permissions)
        if not repositories <= installation.repositories:
            raise AccessDenied(422, "There is at least one repository that does not exist or is not accessible to the parent installation.")  # fmt: skip # noqa: E501
        for name, access in permissions.items():
            if installation.permissions.get(name) not in {access, "write"}:
                raise AccessDenied(422, "The permissions requested are not granted to this installation.")
        token = Token(installation.id, frozenset(repositories), permissions, self._world.now + timedelta(hours=1))
        text = _long_token() if self._world.long_tokens else f"ghs_{secrets.token_hex(18)}"
        self._world.tokens[text] = token
        return text, token


def _long_token() -> str:
    """The shape of 2026: the App's number and a JSON web token, some 520 characters."""
    part = secrets.token_urlsafe
    return f"ghs_{APP_ID}_eyJ{part(24)}.eyJ{part(220)}.{part(128)}"
