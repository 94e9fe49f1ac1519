"""The gates of a few lines each: conflicts, dependencies, secrets, size, syntax, tests alone, and tests made weaker."""

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import PurePosixPath

from app.core.redaction import find_secrets
from app.core.verification import GateResult
from app.repo.merge import markers_left
from app.repo.syntax import first_error
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
from app.verify.gates.test_configuration import configures_tests
from app.verify.overlay import Overlay
from app.verify.test_paths import is_test_file, is_test_path


def conflicts(candidate: CandidatePatch, paths: Iterable[str]) -> GateResult:
    """Blocks while a conflict marker is left in one of these files, even if the patch does not touch it."""
    contents = Overlay(candidate.base, candidate.patch).read_many(paths)
    return gate("conflicts", blocked=[f"{place}: contains a conflict marker" for place in markers_left(contents)])


_DEPENDENCY_FILES = re.compile(
    r"^(?:pyproject\.toml|setup\.(?:py|cfg)|.*requirements.*\.(?:txt|in)|constraints.*\.txt|pipfile(?:\.lock)?|.*\.lock"
    r"|package(?:-lock)?\.json|npm-shrinkwrap\.json|pnpm-(?:lock|workspace)\.yaml|bun\.lockb?|deno\.jsonc?"
    r"|cargo\.toml|go\.(?:mod|sum|work)|gemfile|.*\.gemspec|composer\.json|pom\.xml|(?:build|settings)\.gradle(?:\.kts)?"
    r"|mix\.exs|pubspec\.yaml|package\.swift|environment\.ya?ml|flake\.(?:nix|lock)|.*\.csproj|packages\.config"
    r"|libs\.versions\.toml|gradle-wrapper\.properties)$"
)


def dependencies(candidate: CandidatePatch) -> GateResult:
    """Only warns: such changes are allowed, but always reported."""
    named = (delta for delta in candidate.deltas if _DEPENDENCY_FILES.match(PurePosixPath(delta.path).name.casefold()))
    return gate("dependencies", warned=[f"{displayed_path(delta.path)}: needs review" for delta in named])


_SECRET_FILES = re.compile(
    r"^(?:\.env(?:\.(?!example|sample|template|dist|test)[\w.-]+)?|\.netrc|\.pgpass|\.htpasswd|id_(?:rsa|dsa|ecdsa|ed25519)"
    r"|\.git-credentials|.*\.(?:pfx|p12|jks|keystore|kdbx))$",
    re.IGNORECASE,
)


def secrets(candidate: CandidatePatch) -> GateResult:
    """Blocks secrets in added lines, with type, path and line, and new files whose names suggest secrets."""
    blocked = []
    for delta in candidate.deltas:
        if delta.created and _SECRET_FILES.match(PurePosixPath(delta.path).name):
            blocked.append(f"{displayed_path(delta.path)}: files with this name usually hold secrets")
        blocked += _secrets_in(delta)
    return gate("secrets", blocked=blocked)


def _secrets_in(delta: ChangedPath) -> list[str]:
    if delta.new is None:
        return []
    if delta.text is None:  # binary, or a link's target: every line of it is new
        findings = find_secrets(delta.new.decode(errors="replace"))
        return [f"{displayed_path(delta.path)}: {finding.kind}" for finding in findings]
    added = {number for number, _ in delta.added}
    findings = find_secrets(delta.text) if added else ()
    return [
        f"{displayed_path(delta.path)}:{finding.line}: {finding.kind}" for finding in findings if finding.line in added
    ]


MAX_FILES = 100
MAX_BYTES = 4 * 1024**2


def size(candidate: CandidatePatch) -> GateResult:
    """Blocks an empty patch and one with too many files or bytes, with the numbers; nothing is ever cut to fit."""
    files = len(candidate.deltas)
    weight = sum(len(delta.new) for delta in candidate.deltas if delta.new is not None)
    blocked = []
    if not files:
        blocked.append("the patch changes nothing")
    if files > MAX_FILES:
        blocked.append(f"{files} files are changed; the limit is {MAX_FILES}")
    if weight > MAX_BYTES:
        blocked.append(f"the changed files have {weight:,} bytes; the limit is {MAX_BYTES:,}")
    return gate("size", blocked=blocked)


def refused_files(candidate: CandidatePatch) -> GateResult:
    """Files in the work tree that cannot be part of a patch block the submission while they exist."""
    refusals = candidate.patch.refusals
    return gate("refused files", blocked=[f"{displayed_path(refusal.path)}: {refusal.reason}" for refusal in refusals])


def syntax(candidate: CandidatePatch) -> GateResult:
    """Blocks a file that parsed on the base, or is new; test data may be broken on purpose, so it only warns."""
    blocked: list[str] = []
    warned: list[str] = []
    for delta in candidate.deltas:
        if delta.text is None or delta.new is None:
            continue
        problem = first_error(delta.path, delta.new)
        if problem is None:
            continue
        finding = f"{displayed_path(delta.path)}:{problem.line}: {problem.text}"
        (warned if _broken_before(delta) or _data_of_tests(delta.path) else blocked).append(finding)
    return gate("syntax", blocked=blocked, warned=warned)


def _broken_before(delta: ChangedPath) -> bool:
    return delta.old is not None and first_error(delta.path, delta.old) is not None


def _data_of_tests(path: str) -> bool:
    return is_test_path(path) and not is_test_file(path) and not path.endswith("conftest.py")


def tests_alone(candidate: CandidatePatch) -> GateResult:
    """Blocks every change outside of tests and their supporting files."""
    others = [delta.path for delta in candidate.deltas if not is_test_path(delta.path)]
    return gate(
        "tests alone",
        blocked=[f"{displayed_path(path)}: is not a test; this task may only change tests" for path in others],
    )


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
    """Warns of tests that are deleted, renamed, skipped or expected to fail, and of assertions that are changed."""
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
