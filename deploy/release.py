"""What a release is made of besides its files: checks before it, notes, and templates that pin the action's commit.

release.py check v1.2.3            fails unless tag, version and changelog agree
release.py notes 1.2.3             prints the changelog's section
release.py pin 1.2.3 OWNER/NAME@COMMIT DIR
                                   writes workflows/*.yml to DIR with the action of that repository, by that commit
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NUMBER = "(?:0|[1-9][0-9]*)"
TAG = re.compile(rf"v(?P<version>(?P<major>{NUMBER})\.{NUMBER}\.{NUMBER}(?P<pre>(?:a|b|rc)[0-9]+)?)")
USES = re.compile(r"uses: [\w.-]+/agent-fix@v[0-9]+(?: #.*)?")
ACTION = re.compile(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}")


class ReleaseError(Exception):
    """Why this cannot be released as it is."""


def check(tag: str, version: str, changelog: str) -> None:
    found = TAG.fullmatch(tag)
    if found is None:
        raise ReleaseError(f"{tag} is no release's tag; write it like v1.2.3 or v1.2.3rc1.")
    if found["version"] != version:
        raise ReleaseError(f"The tag says {found['version']}, app/__init__.py says {version}.")
    if not notes(version, changelog).strip():
        raise ReleaseError(f"CHANGELOG.md says nothing of {version}.")
    if not found["pre"] and not re.search(rf"(?m)^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changelog):
        raise ReleaseError(f"CHANGELOG.md has no date for {version}; write it like `## [{version}] - 2026-01-31`.")


def notes(version: str, changelog: str) -> str:
    """The section of a version, without its heading; empty where there is none."""
    parts = re.split(r"(?m)^## \[(.+?)\].*\n", changelog)
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    return sections.get(version, "").strip() + "\n" if version in sections else ""


def moving_tag(tag: str) -> str:
    """The tag that follows a major version; empty for a pre-release, which moves nothing."""
    found = TAG.fullmatch(tag)
    return f"v{found['major']}" if found and not found["pre"] else ""


def pinned(template: str, version: str, action: str) -> str:
    """The template with `action`, OWNER/NAME@COMMIT: the repository that releases, which a fork is too."""
    if not ACTION.fullmatch(action):
        raise ReleaseError(f"{action} is not OWNER/NAME@COMMIT with a full commit id.")
    text, count = USES.subn(f"uses: {action} # v{version}", template)
    if not count:
        raise ReleaseError("The template does not use the action.")
    return text


def main(words: Sequence[str]) -> int:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    try:
        match list(words):
            case ["check", tag]:
                source = (ROOT / "app" / "__init__.py").read_text("utf-8")
                found = re.search(r'__version__ = "(.+?)"', source)
                check(tag, found[1] if found else "", changelog)
                sys.stdout.write(f"{moving_tag(tag)}\n")
            case ["notes", version]:
                sys.stdout.write(notes(version, changelog))
            case ["pin", version, action, directory]:
                _pin_all(version, action, Path(directory))
            case _:
                sys.stderr.write(__doc__ or "")
                return 2
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _pin_all(version: str, action: str, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for template in sorted((ROOT / "workflows").glob("*.yml")):
        (directory / template.name).write_text(pinned(template.read_text("utf-8"), version, action), "utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
