"""Advice for each gate that blocks, because the finding alone does not say which repair is right."""

from collections.abc import Mapping
from typing import Final

ADVICE: Final[Mapping[str, str]] = {
    "size": "Leave out what the task does not need: generated files, formatting, copies.",
    "refused files": "Remove these from /workspace; what is only for trying belongs into /tmp.",
    "protected paths": "Take these changes back. If nothing else would help, submit the rest and say so.",
    "file kinds": "Take this file back, or make it a plain text file or a relative link to a file in the repository.",
    "tests alone": "Put these files back as they were; tests stand in files of their own. A bug goes into the summary.",
    "conflicts": "Resolve these places and remove all lines that git put around them.",
    "syntax": "Mend the file: view these lines. It has to parse by itself.",
    "secrets": "Take the value out: read it from where the project reads its settings, or use an obvious placeholder.",
    "hidden characters": "Write these lines again with plain characters, or with escapes where the character is meant.",
    "shadowing": "Remove this: imports must load what the language and the installed packages provide.",
    "lint": "Execute the command, mend what it names in your lines, and silence nothing.",
}
"""By the gate's name. Gates that only warn are for people and have no advice."""
