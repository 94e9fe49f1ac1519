"""Reports changes of dependencies, which can add code that no diff shows."""

import re
from pathlib import PurePosixPath

from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, displayed_path, gate

_NAMES = re.compile(
    r"^(?:pyproject\.toml|setup\.(?:py|cfg)|.*requirements.*\.(?:txt|in)|constraints.*\.txt|pipfile(?:\.lock)?|.*\.lock"
    r"|package(?:-lock)?\.json|npm-shrinkwrap\.json|pnpm-(?:lock|workspace)\.yaml|bun\.lockb?|deno\.jsonc?"
    r"|cargo\.toml|go\.(?:mod|sum|work)|gemfile|.*\.gemspec|composer\.json|pom\.xml|(?:build|settings)\.gradle(?:\.kts)?"
    r"|mix\.exs|pubspec\.yaml|package\.swift|environment\.ya?ml|flake\.(?:nix|lock)|.*\.csproj|packages\.config"
    r"|libs\.versions\.toml|gradle-wrapper\.properties)$"
)


def dependencies(candidate: CandidatePatch) -> GateResult:
    """Only warns: such changes are allowed, but always reported."""
    named = (delta for delta in candidate.deltas if _NAMES.match(PurePosixPath(delta.path).name.casefold()))
    return gate("dependencies", warned=[f"{displayed_path(delta.path)}: needs review" for delta in named])
