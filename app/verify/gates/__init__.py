"""The gates: properties that a patch must not have, checked without executing any of it."""

from collections.abc import Collection, Iterable, Sequence

from app.core.task import AllowedPath
from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch
from app.verify.gates.changes_of_tests import how_tests_run, tests_alone, weaker_tests
from app.verify.gates.contents import conflicts, dependencies, hidden_characters, secrets, syntax
from app.verify.gates.paths import file_kinds, protected_paths, refused_files, size
from app.verify.gates.shadowing import shadowing

__all__ = ["CandidatePatch", "publisher_gates", "static_gates"]


def static_gates(
    candidate: CandidatePatch,
    protected: Iterable[str] = (),
    conflicting: Collection[str] = (),
    *,
    only_tests: bool = False,
    allowed: Sequence[AllowedPath] = (),
    installed: Collection[str] = (),
) -> tuple[GateResult, ...]:
    """All gates that need nothing but the bytes; those that read contents run only if the size allows it.

    `conflicting` are the base's paths with conflicts to resolve. `only_tests`: the patch may only touch tests.
    A person let the job change the protected paths that are `allowed`. `installed`: the sandbox's modules, if known.
    """
    guarded = protected_paths(candidate, protected, allowed)
    within_size = size(candidate)
    first = (within_size, refused_files(candidate), guarded, file_kinds(candidate))
    alone = (tests_alone(candidate),) if only_tests else ()
    if within_size.outcome == "blocked":
        return (*first, *alone)
    rest = (syntax, secrets, hidden_characters, dependencies, how_tests_run, weaker_tests)
    resolved = (conflicts(candidate, conflicting),) if conflicting else ()
    return (*first, *alone, *resolved, shadowing(candidate, installed), *(examine(candidate) for examine in rest))


def publisher_gates(
    candidate: CandidatePatch, protected: Iterable[str] = (), allowed: Sequence[AllowedPath] = ()
) -> tuple[GateResult, ...]:
    """The gates that the publisher checks again right before the push, whatever the worker reported."""
    within_size = size(candidate)
    first = (within_size, refused_files(candidate), protected_paths(candidate, protected, allowed))
    if within_size.outcome == "blocked":  # contents that are too large are not even read
        return first
    return (*first, *(examine(candidate) for examine in (file_kinds, secrets, hidden_characters)))
