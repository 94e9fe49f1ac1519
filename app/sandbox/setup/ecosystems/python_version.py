"""Finds a version for projects that take theirs from git, which a sandbox does not have."""

import re
from collections.abc import Iterator

from app.sandbox.setup.ecosystems.base import ManifestFiles, table

_FROM_GIT = re.compile(
    r"setuptools[-_]scm|use_scm_version|hatch[-_]vcs|versioningit|\bpbr\b|poetry-dynamic-versioning|vcs-versioning"
)
_CHANGELOG = re.compile(r"(?:CHANGELOG|CHANGES|HISTORY|NEWS|RELEASES?)(?:\.(?:md|rst|txt))?", re.IGNORECASE)
_HEADING = re.compile(r"^[#=\[\s*v]*(?:[\w.-]+\s+|[Vv]ersion\s+)?\[?v?(\d+\.\d+(?:\.\d+)?)\b", re.MULTILINE)
# Plugins that a project's own tests install more often set lower bounds on it than upper ones.
_UNKNOWN = "999.0.0"
_CHANGELOGS_READ = 5
_WRITTEN = re.compile(r"""(?:write_to|version_file)['"]?\s*[:=]\s*['"]?([\w./-]+\.\w+)""")


def version_environment(files: ManifestFiles, root: str) -> tuple[tuple[str, str], ...]:
    """Variables that replace git tags; the changelog's newest version is close enough for dependants' bounds."""
    declared = "".join(files.text(f"{root}{name}") for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if not _FROM_GIT.search(declared):
        return ()
    version = _newest(files, root)
    return (
        ("PBR_VERSION", version),
        ("PDM_BUILD_SCM_VERSION", version),
        ("POETRY_DYNAMIC_VERSIONING_BYPASS", version),
        ("SETUPTOOLS_SCM_PRETEND_VERSION", version),
    )


def generated_files(files: ManifestFiles, root: str) -> tuple[str, ...]:
    """Untracked version files that the build writes into the tree and the project then imports."""
    return tuple(f"{root}{path}" for path in _declared(files, root) if f"{root}{path}" not in files)


def _declared(files: ManifestFiles, root: str) -> Iterator[str]:
    tool = table(files.toml(f"{root}pyproject.toml"), "tool")
    places = (
        (table(tool, "setuptools_scm"), ("version_file", "write_to")),
        (table(tool, "setuptools-scm"), ("version_file", "write_to")),
        (table(tool, "hatch", "build", "hooks", "vcs"), ("version-file",)),
    )
    for name in ("setup.py", "setup.cfg"):
        for found in _WRITTEN.finditer(files.text(f"{root}{name}")):
            if not found[1].startswith("/") and ".." not in found[1].split("/"):
                yield found[1]
    for place, names in places:
        for name in names:
            path = place.get(name)
            if isinstance(path, str) and path and not path.startswith("/") and ".." not in path.split("/"):
                yield path


def _newest(files: ManifestFiles, root: str) -> str:
    """The first version in a changelog's heading, searched near the top of the tree first."""
    named = [path for path in files if path.startswith(root) and _CHANGELOG.fullmatch(path.rpartition("/")[2])]
    nearest = sorted(named, key=lambda path: (path.count("/"), path))[:_CHANGELOGS_READ]
    return next((found[1] for text in map(files.text, nearest) if (found := _HEADING.search(text))), _UNKNOWN)
