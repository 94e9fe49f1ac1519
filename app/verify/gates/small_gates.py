"""The gates that take a few lines each: conflicts, dependencies, secrets, size, syntax, and tests alone."""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

from app.core.redaction import find_secrets
from app.core.verification import GateResult
from app.repo.merge import markers_left
from app.repo.syntax import first_error
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate
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


def secret_lines(candidate: CandidatePatch) -> GateResult:
    """Blocks with type, path and line."""
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
    """Blocks with numbers; nothing is ever cut to fit."""
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
