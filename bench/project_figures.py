"""The page that says what `make bench-projects` measured, made from the results that are kept."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

KEPT = Path(__file__).with_name("projects.measured.json")
_LIST = Path(__file__).with_name("projects.yml")
_PATH = re.compile(r"(?<![\w.:/])(?:/[\w.+@-]+){2,}/?")
_KEYS = ("comparable", "first_tests", "candidate", "seconds", "passed", "failed", "not_run", "written")
_LENGTH = 160
_COLUMNS = "| Project | Comparable | Candidate | Passed | Failed | Not run | Written | Seconds |"


_REPAIRS = (
    (
        r"did not end in time|stopped at its limit",
        "more time (`budget: {suite_minutes: 30}`), or a `test:` that runs a part",
    ),
    (r"Only its exit code is known", "a `test:` with a runner that reports each test"),
    (r"in the text ran", "a `test:` that runs all of them"),
    (r"cannot be fetched", "a mirror of the repository"),
    (r"No test (?:command|was)", "a `test:`, and what it needs in `setup:`"),
    (r"not installed in the sandbox|not in the sandbox|tests fail", "a `setup:` that installs what is missing"),
    (r"set-up command", "a `setup:` that leaves out what cannot be had, or `network:` with the host it is had from"),
)
_OTHER_REPAIR = "the `setup:` and `test:` that its CI executes"


def checked(found: Mapping[str, Any]) -> dict[str, Any]:
    """The result, which is not comparable where less than half of the tests in the text ran.

    Of a suite that was stopped only the first tests are comparable, which is a mark of its own.
    """
    if found["comparable"] and found.get("stopped"):
        return {**found, "comparable": False, "first_tests": True}
    ran = sum(found.get(key, 0) for key in ("passed", "failed", "not_run"))
    if not found["comparable"] or 2 * ran >= found["written"]:
        return dict(found)
    reason = f"Only {ran} of {found['written']} tests in the text ran."
    return {**found, "comparable": False, "reasons": [reason, *found["reasons"]]}


def mark(found: Mapping[str, Any]) -> str:
    """Whether a suite is comparable, in a word or two."""
    return "yes" if found.get("comparable") else "first tests" if found.get("first_tests") else "no"


def keep(results: Path) -> None:
    """Keep the newest result of each project, without paths of the machine."""
    kept = json.loads(KEPT.read_text("utf-8")) if KEPT.exists() else {}
    for line in results.read_text("utf-8").splitlines():
        found = checked(json.loads(line))
        reasons = [] if found["comparable"] else [plain(reason) for reason in found["reasons"][:1]]
        kept[found["project"]] = {**{key: found[key] for key in _KEYS if key in found}, "reasons": reasons}
    KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n", "utf-8")


def plain(reason: str) -> str:
    """One short line without directories of the machine."""
    return _PATH.sub("PATH", " ".join(reason.split()))[:_LENGTH]


def repair(reason: str) -> str:
    """What to write into the project's configuration, by the reason why no comparable suite was found."""
    return next((text for pattern, text in _REPAIRS if re.search(pattern, reason)), _OTHER_REPAIR)


def page() -> str:
    """The two sets apart, each with its share."""
    measured: Mapping[str, Mapping[str, Any]] = json.loads(KEPT.read_text("utf-8"))
    held_back = {
        f"{one['repository']}@{str(one['date'])[:4]}"
        for one in yaml.safe_load(_LIST.read_text("utf-8"))["projects"]
        if one.get("held_back")
    }
    sets = (
        (
            "Held back",
            (
                "No change was made because of what these showed. Failures that were looked into have moved to the "
                "other table, so this share is too good: [first measurements](../development/projects.md) gave 74 %, "
                "and 56, 50, 50, 30 and 70 % of projects that were drawn by lot."
            ),
            sorted(measured.keys() & held_back),
        ),
        (
            "Looked into",
            "Their failures were looked into, and what was common to several was changed.",
            sorted(measured.keys() - held_back),
        ),
    )
    return "\n".join(line for title, text, names in sets for line in _table(title, text, names, measured))


def _table(title: str, text: str, names: Sequence[str], measured: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    good = sum(measured[name]["comparable"] for name in names)
    share = f" ({100 * good // len(names)} %)" if names else ""
    first = sum(mark(measured[name]) == "first tests" for name in names)
    stopped = f" {first} more are comparable by the first tests of a stopped suite, and not counted." if first else ""
    sentence = f"{text} {good} of {len(names)}{share} have a comparable suite.{stopped}"
    yield from (f"## {title}\n", f"{sentence}\n", _COLUMNS)
    yield "|" + " --- |" * _COLUMNS.count(" | ") + " --- |"
    for name in names:
        found = measured[name]
        numbers = [str(found.get(key, "")) for key in ("passed", "failed", "not_run", "written")]
        cells = [name, mark(found), str(found.get("candidate", "")), *numbers]
        yield f"| {' | '.join([*cells, str(round(found.get('seconds', 0)))])} |"
    yield ""
    for name in names:
        for reason in measured[name]["reasons"]:
            yield f"- {name}: {_escaped(reason)} *Repair*: {repair(reason)}."
    yield ""


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_<>\[\]|$])", r"\\\1", text)
