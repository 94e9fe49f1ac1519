"""Advice for each gate that blocks, because the finding alone does not say which repair is right."""

from collections.abc import Mapping
from typing import Final

ADVICE: Final[Mapping[str, str]] = {
    "size": "Remove what the task does not need: generated files, formatting, copies.",
    "refused files": "Remove these from /workspace; put experiments in /tmp.",
    "protected paths": "Revert these changes. If the task needs them, submit the rest and say so.",
    "file kinds": "Revert this file, or make it a text file or a relative link to a file in the repository.",
    "tests alone": "Revert these files; put tests in test files. If you found a bug, describe it in the summary.",
    "conflicts": "Resolve these conflicts and remove git's marker lines.",
    "syntax": "View these lines and fix the syntax.",
    "secrets": "Remove the value: read it from the project's settings, or use an obvious placeholder.",
    "hidden characters": "Rewrite these lines with plain characters, or use escapes where you need the character.",
    "shadowing": "Remove this file: imports must load the standard library and the installed packages.",
    "lint": "Run the command and fix what it reports in your lines; do not silence it.",
}
"""By the gate's name. Gates that only warn are for people and have no advice."""
