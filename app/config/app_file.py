"""Reads and writes `app.env` in the state directory: the new App's settings from the set-up page, as `NAME=value`
lines."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path

from app.core.errors import OutputError

NAME = "app.env"
_MAX_BYTES = 64 * 1024


def read_app_file(state: Path, names: Collection[str]) -> dict[str, str]:
    """The values of these names, empty if there is no such file. Raises OutputError if it cannot be read."""
    try:
        with (state / NAME).open("r", encoding="utf-8") as file:
            lines = file.read(_MAX_BYTES).splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OutputError(f"{state / NAME} cannot be read: {reason}.") from error
    pairs = (line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip() in names}


def write_app_file(state: Path, values: Mapping[str, str]) -> Path:
    """Write the file atomically, readable by this user only; returns its path. Raises OutputError if that fails."""
    path = state / NAME
    draft = path.with_suffix(".new")
    text = "# The GitHub App's credentials. Keep this file secret, like a password.\n"
    text += "".join(f"{name}={value.strip()}\n".replace("\r", "") for name, value in _on_one_line(values).items())
    try:
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}.") from error
    return path


def _on_one_line(values: Mapping[str, str]) -> dict[str, str]:
    return {name: value.strip().replace("\n", "\\n") for name, value in values.items()}
