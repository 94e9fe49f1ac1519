"""The version of Node that a project needs, or is tested on: `engines`, version files, CI and its package manager."""

import re
from collections.abc import Iterator
from datetime import date
from typing import NamedTuple

from app.sandbox.setup.declared.ci import ci_jobs
from app.sandbox.setup.manifests import ManifestFiles, table

Version = tuple[int, int, int]

_COMPARATOR = re.compile(r"(\^|~>?|>=|<=|>|<|=)?\s*v?(\d+)(?:\.(\d+))?(?:\.(\d+))?")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")
_MAJOR = re.compile(r"v?(\d+)\b(?!-)")
_NEWEST = re.compile(r"lts(?:/\*)?|latest|current|node|stable|\*")
_CLIENT_NEEDS = (("pnpm", 11, ">=22.13"), ("pnpm", 9, ">=18.12"), ("yarn", 4, ">=18.12"))
"""What a package manager from that major version on needs, the newest first."""
_END: Version = (10**6, 0, 0)


class NodeChoice(NamedTuple):
    """Major versions: the one without which nothing is tried, and one to try beside; empty for this machine's."""

    needed: str = ""
    other: str = ""


def choose_node(files: ManifestFiles, root: str, own: str, committed: date) -> NodeChoice:
    """`own` is this machine's version (`20.1.0`), empty if unknown: then nothing is chosen."""
    found = _parsed(own)
    if found is None:
        return NodeChoice()
    package = files.json(f"{root}package.json")
    engine = table(package, "engines").get("node")
    ranges = [text for text in (engine, _range_of_client(str(package.get("packageManager", "")))) if text]
    ranges = [text for text in ranges if isinstance(text, str)]
    named = sorted(set(_named(files, root, committed)))
    after = (*found[:2], found[2] + 1)
    if not all(_overlaps(text, found, after) for text in ranges):
        return NodeChoice(needed=_nearest(found[0], named, ranges))
    if not named or found[0] in named:
        return NodeChoice()
    nearest = _nearest(found[0], named, ranges)
    return NodeChoice(needed=nearest) if not engine and found[0] < named[0] else NodeChoice(other=nearest)


def _nearest(own: int, named: list[int], ranges: list[str]) -> str:
    """The version nearest to this machine's that the ranges admit: of those named, else of the even ones, which are
    supported for long; a newer one before an older one."""
    for majors in (named, range(4, own + 20, 2)):
        possible = [each for each in majors if all(_overlaps(text, (each, 0, 0), (each + 1, 0, 0)) for text in ranges)]
        if possible:
            return str(min(possible, key=lambda each: (each < own, abs(each - own))))
    return ""


def _named(files: ManifestFiles, root: str, committed: date) -> Iterator[int]:
    """The major versions in version files, package.json and jobs of CI."""
    texts = [files.text(f"{place}{name}") for place in {"", root} for name in (".nvmrc", ".node-version")]
    texts.append(str(table(files.json(f"{root}package.json"), "volta").get("node", "")))
    texts += re.findall(r"^nodejs\s+(\S+)", files.text(".tool-versions"), re.MULTILINE)
    texts += [version for job in ci_jobs(files) if job.score >= 0 for version in job.nodes]
    for text in map(str.strip, texts):
        if found := _MAJOR.match(text):
            yield int(found[1])
        elif _NEWEST.fullmatch(text):
            yield 2 * (committed.year - (2013 if committed.month > 10 else 2014))  # each October one becomes LTS


def _range_of_client(named: str) -> str:
    """The range of a package manager that package.json names, such as `pnpm@11.0.2`."""
    tool, _, version = named.partition("@")
    found = _MAJOR.match(version)
    needs = (text for name, least, text in _CLIENT_NEEDS if found and tool == name and int(found[1]) >= least)
    return next(needs, "")


def _overlaps(text: str, low: Version, high: Version) -> bool:
    """Whether a range of npm's, such as `^18.2 || >=20`, admits a version from `low` to below `high`."""
    for alternative in text.split("||"):
        least, end = low, high
        for operator, *parts in _COMPARATOR.findall(_HYPHEN.sub(r">=\1 <=\2", alternative)):
            begins, ends = _bounds(operator, [int(part) for part in parts if part])
            least, end = max(least, begins), min(end, ends)
        if least < end:
            return True
    return False


def _bounds(operator: str, parts: list[int]) -> tuple[Version, Version]:
    """The first version of a comparator, and the first after it; exact ones stand for their major version."""
    major, minor, patch = (*parts, 0, 0)[:3]
    least: Version = (major, minor, patch)
    written_to = (*parts[:-1], parts[-1] + 1, 0, 0)[:3]
    after: Version = (written_to[0], written_to[1], written_to[2])
    if operator in {">=", ">"}:
        return (least if operator == ">=" else after), _END
    if operator in {"<", "<="}:
        return (0, 0, 0), (least if operator == "<" else after)
    if operator.startswith("~") and len(parts) > 1:
        return least, (major, minor + 1, 0)
    return (least if operator else (major, 0, 0)), (major + 1, 0, 0)


def _parsed(version: str) -> Version | None:
    found = re.match(r"v?(\d+)\.(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None
