"""agent-fix: label an issue, get a draft pull request with proof."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.cli.python_api import FixOutcome, FixProgress, FixSettings, fix

__version__ = "0.1.0"
__all__ = ["FixOutcome", "FixProgress", "FixSettings", "fix"]


def __getattr__(name: str) -> object:
    """Import the call for programs only when it is used."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from app.cli import python_api  # noqa: PLC0415

    return getattr(python_api, name)
