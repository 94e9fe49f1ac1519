"""The operator's key for signing commits: an SSH private key's file, or a GPG key in the operator's own keyring."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from app.config.roles import SIGNING_KEY
from app.config.settings import SettingProblem, SettingsError

_GPG = "gpg:"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """What git is told, which calls `ssh-keygen` or `gpg`. The key must work without a passphrase."""

    format: Literal["ssh", "openpgp"]
    key: str
    home: str = ""
    """The directory of GPG's keyring."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self | None:
        """From `AGENT_FIX_SIGNING_KEY`; None if it is not set. Raises SettingsError for a file that is not there."""
        value = environment.get(SIGNING_KEY, "").strip()
        if not value:
            return None
        if value.startswith(_GPG):
            home = environment.get("GNUPGHOME") or str(Path(environment.get("HOME", "/")) / ".gnupg")
            return cls("openpgp", value.removeprefix(_GPG).strip(), home)
        if not Path(value).is_file():
            hint = "Set it to the path of an SSH private key, or to gpg:KEYID."
            raise SettingsError([SettingProblem(SIGNING_KEY, f"is {value[:200]!r}, but there is no such file.", hint)])
        return cls("ssh", str(Path(value).absolute()))

    @property
    def options(self) -> tuple[str, ...]:
        return ("-c", f"gpg.format={self.format}", "-c", f"user.signingKey={self.key}")

    @property
    def variables(self) -> dict[str, str]:
        return {"GNUPGHOME": self.home} if self.home else {}
