"""Reports tests that were deleted or weakened."""

import re
from collections import Counter

from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.gates.test_configuration import configures_tests
from app.verify.test_paths import is_test_file, is_test_path

_DEFINITION = re.compile(
    r"^\s*(?:async )?def (?P<python>test_?\w*)"
    r"|^func (?P<go>(?:Test|Fuzz|Example)\w*)\("
    r"|^\s*(?:it|test|describe)(?:\.each\(.*?\))?\(\s*(?P<quote>['\"`])(?P<script>.*?)(?P=quote)"
    r"|#\[(?:\w+::)?test\](?:\s*#\[.*\])*\s*(?:async )?fn (?P<rust>\w+)"
    r"|@(?:Parameterized)?Test\b[^{]*?\bvoid (?P<java>\w+)",
    re.MULTILINE,
)
_SKIP = re.compile(
    r"pytest\.(?:mark\.)?(?:skip|skipif|xfail)\b|\bunittest\.(?:skip\w*|expectedFailure)\b|\bself\.skipTest\("
    r"|\b(?:it|test|describe)\.(?:skip|todo|failing)\b|\bx(?:it|describe|test)\(|\bt\.Skip(?:f|Now)?\("
    r"|#\[ignore|@(?:Disabled|Ignore)\b|\bpending\("
)
_ASSERTION = re.compile(
    r"\bassert\w*\b|\bexpect\w*\(|\bshould\b|\bpytest\.raises\b"
    r"|\brequire\.\w+\(t|\bt\.(?:Error|Fatal)f?\("
)


def weaker_tests(candidate: CandidatePatch) -> GateResult:
    """Warns of each."""
    warned = [
        f"{displayed_path(delta.path)}: {finding}"
        for delta in candidate.deltas
        if is_test_path(delta.path) and delta.old is not None and not configures_tests(delta.path)
        for finding in _weaker(delta)
    ]
    return gate("tests", warned=warned)


def _weaker(delta: ChangedPath) -> list[str]:
    before, after = delta.old_text, delta.text or ""
    if delta.new is None:
        count = len(_names(before))
        return [f"deleted, with {count} test{'s' if count != 1 else ''}"] if is_test_file(delta.path) else ["deleted"]
    findings = []
    if gone := removed_tests(before, after):
        findings.append(f"tests removed or renamed: {', '.join(gone[:5])}{' …' if len(gone) > 5 else ''}")
    skips = len(_SKIP.findall(after)) - len(_SKIP.findall(before))
    if skips > 0:
        findings.append(f"{skips} more skipped or expected to fail")
    if changed := (_assertions(before) - _assertions(after)).total():
        findings.append(f"{changed} assertion{'s' if changed != 1 else ''} changed or removed")
    return findings


def removed_tests(before: str, after: str) -> tuple[str, ...]:
    """The names of tests that a file no longer has."""
    return tuple(sorted(_names(before) - _names(after)))


def _assertions(text: str) -> Counter[str]:
    """A new assertion elsewhere does not make up for a removed one."""
    return Counter(" ".join(line.split()) for line in text.splitlines() if _ASSERTION.search(line))


def _names(text: str) -> set[str]:
    groups = ("python", "go", "script", "rust", "java")
    return {found[group] for found in _DEFINITION.finditer(text) for group in groups if found[group]}
