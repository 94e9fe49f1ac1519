"""Sixty paths that no patch may touch, in every spelling that some file system takes for the same."""

import random
import unicodedata
from collections.abc import Callable

import pytest

from app.core.patch import FileChange, Mode, Patch
from app.verify.gates import CandidatePatch
from app.verify.gates.paths import file_kinds, protected_paths
from tests.support.memory_tree import MemoryTree

FORBIDDEN = (
    ".github/workflows/ci.yml",
    ".github/workflows/ci.yaml",
    ".github/workflows/release.yml",
    ".github/workflows/nested/deep.yml",
    ".github/workflows/README.md",
    ".github/workflows",
    ".github/actions/build/action.yml",
    ".github/actions/build/index.js",
    ".github/actions",
    ".github/dependabot.yml",
    ".github/dependabot.yaml",
    ".github/agent-fix.yml",
    ".github/agent-fix/prompts/bug.md",
    ".github/agent-fix.yaml",
    ".github/CODEOWNERS",
    ".github",
    "CODEOWNERS",
    "docs/CODEOWNERS",
    ".gitlab/CODEOWNERS",
    ".gitmodules",
    "vendor/.gitmodules",
    ".gitattributes",
    "src/.gitattributes",
    ".gitconfig",
    ".git-credentials",
    ".git",
    ".git/config",
    ".git/hooks/pre-commit",
    ".git/hooks/post-checkout",
    ".git/info/attributes",
    ".git/modules/x/config",
    "sub/.git",
    "sub/.git/config",
    "sub/.git/hooks/pre-push",
    "a/b/c/.git/HEAD",
    ".husky/pre-commit",
    ".husky/_/husky.sh",
    "web/.husky/pre-push",
    ".githooks/pre-commit",
    ".githooks/commit-msg",
    "tools/.githooks/pre-push",
    ".git-hooks/pre-commit",
    ".git_hooks/pre-commit",
    ".gitlab-ci.yml",
    ".gitlab/ci/build.yml",
    ".circleci/config.yml",
    ".circleci/scripts/x.sh",
    ".buildkite/pipeline.yml",
    ".woodpecker/build.yml",
    ".tekton/pipeline.yaml",
    ".travis.yml",
    ".drone.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    "Jenkinsfile",
    "ci/Jenkinsfile",
    "appveyor.yml",
    ".cirrus.yml",
    "cloudbuild.yaml",
    "action.yml",
    "tools/act/action.yaml",
    ".woodpecker.yml",
    ".drone.star",
    ".drone.jsonnet",
    ".cirrus.star",
    ".azure-pipelines/build.yml",
    "azure-pipelines.release.yml",
    "build/azure-pipelines.yml",
    ".azuredevops/build.yml",
    "codefresh.yml",
    "wercker.yml",
    ".builds/alpine.yml",
    ".build.yml",
    ".forgejo/workflows/ci.yml",
    ".gitea/workflows/ci.yml",
    "vercel.json",
    "apps/web/vercel.json",
    "netlify.toml",
    ".mergify.yml",
    ".github/mergify.yml",
    ".mergify/config.yml",
    ".zuul.yaml",
    "zuul.d/jobs.yaml",
    "Jenkinsfile.release",
    "buildspec-prod.yml",
    "cloudbuild.json",
    ".prow.yaml",
    "bitrise.yml",
    "fly.toml",
)
BASE = {
    ".github/workflows/ci.yml": b"steps:\n- uses: ./\n- uses: './tools/act'\n- uses: actions/checkout@v4\n",
    "src/app.py": b"x = 1\n",
    "README.md": b"hello\n",
}
ALLOWED = (
    "src/app.py",
    "README.md",
    "src/git.py",
    "src/github/workflows.py",
    "docs/workflows/ci.md",
    "hooks/use_state.js",
    ".gitignore",
    "src/actions/action.yml",
    "codeowners.py",
    "src/.gitkeep",
    "tests/test_git.py",
    "a/git~1.txt",
    "src/codeowners/match.py",
    "packages/a/CODEOWNERS",
    "src/CODEOWNERS.md",
    "templates/python/.github/workflows/ci.yml",
    "packages/a/.github/workflows/ci.yml",
    "{{cookiecutter.name}}/.github/workflows/ci.yml",
    "tests/fixtures/.travis.yml",
    "tests/data/.circleci/config.yml",
    "docs/appveyor.yml",
    "tests/Jenkinsfile",
    "templates/vercel.json",
    "src/vercel.json.ts",
    "src/jenkinsfile_parser.py",
    "src/circleci/config.py",
)


def refused(path: str, content: bytes | None = b"x", mode: Mode = "100644", *, base: bool = False) -> bool:
    files = {**BASE, path: b"old"} if base else BASE
    candidate = CandidatePatch(
        MemoryTree(files), Patch(base="0" * 40, changes=(FileChange(path=path, mode=mode, content=content),))
    )
    return "blocked" in (protected_paths(candidate).outcome, file_kinds(candidate).outcome)


def test_the_table_has_sixty_paths() -> None:
    assert len(set(FORBIDDEN)) >= 60


@pytest.mark.parametrize("path", FORBIDDEN)
def test_a_protected_path_cannot_be_changed_in_any_way(path: str) -> None:
    assert refused(path)
    assert refused(path, b"new", base=True)
    assert refused(path, None, base=True)
    assert refused(path, b"../src/app.py", "120000")
    assert refused(path, b"x", "100755")
    assert refused(path, b"old", "100755", base=True)


@pytest.mark.parametrize("path", FORBIDDEN)
def test_a_protected_path_cannot_be_renamed_from_or_to(path: str) -> None:
    away = (
        FileChange(path="docs/kept.txt", mode="100644", content=b"old"),
        FileChange(path=path, mode="100644", content=None),
    )
    here = (
        FileChange(path="README.md", mode="100644", content=None),
        FileChange(path=path, mode="100644", content=b"hello\n"),
    )
    for files, changes in (({**BASE, path: b"old"}, away), (BASE, here)):
        candidate = CandidatePatch(MemoryTree(files), Patch(base="0" * 40, changes=changes))
        assert protected_paths(candidate).outcome == "blocked"


@pytest.mark.parametrize("path", ALLOWED)
def test_ordinary_paths_are_free(path: str) -> None:
    assert not refused(path)
    assert not refused(path, b"new", base=True)


def test_reviewed_paths_only_warn() -> None:
    for path in ("AGENTS.md", ".github/ISSUE_TEMPLATE/bug.md", ".pre-commit-config.yaml", ".vscode/tasks.json"):
        candidate = CandidatePatch(
            MemoryTree(BASE), Patch(base="0" * 40, changes=(FileChange(path=path, mode="100644", content=b"x"),))
        )
        assert protected_paths(candidate).outcome == "warned"


IGNORED = (
    "\u200b\u200c\u200d\u2060\u2061\ufeff\u00ad\u034f\u180e\u061c\u202e\u2066\U000e0001\U000e0041\ufe0f\u115f\u3164"
)


def upper(path: str, _: random.Random) -> str:
    return path.upper()


def random_case(path: str, dice: random.Random) -> str:
    return "".join(dice.choice((c.upper(), c.lower())) for c in path)


def ignorable(path: str, dice: random.Random) -> str:
    for _ in range(dice.randint(1, 3)):
        at = dice.randint(0, len(path))
        path = path[:at] + dice.choice(IGNORED) + path[at:]
    return path


def full_width(path: str, dice: random.Random) -> str:
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and c != "/" and dice.random() < 0.4 else c for c in path)


def mathematical(path: str, dice: random.Random) -> str:
    return "".join(chr(0x1D41A + ord(c) - ord("a")) if "a" <= c <= "z" and dice.random() < 0.3 else c for c in path)


def marked(path: str, dice: random.Random) -> str:
    at = dice.randint(1, len(path))
    return unicodedata.normalize(dice.choice(("NFC", "NFD")), path[:at] + dice.choice("\u0301\u0308\u0323") + path[at:])


def trailing(path: str, dice: random.Random) -> str:
    parts = path.split("/")
    at = dice.randrange(len(parts))
    parts[at] += dice.choice((".", " ", "..", ". .", "\u3000", "\u2024"))
    return "/".join(parts)


def leading_space(path: str, _: random.Random) -> str:
    return "/".join(f" {part}" for part in path.split("/"))


def stream(path: str, dice: random.Random) -> str:
    parts = path.split("/")
    at = dice.randrange(len(parts))
    parts[at] += dice.choice(("::$DATA", "::$INDEX_ALLOCATION", ":x"))
    return "/".join(parts)


def separators(path: str, dice: random.Random) -> str:
    return path.replace("/", dice.choice(("\\", "//", "/./", "\u2215", "\u2044", "\uff0f")))


def dotted(path: str, dice: random.Random) -> str:
    return dice.choice(("./", "x/../", "/", "//", "../repository/")) + path


def kelvin(path: str, _: random.Random) -> str:
    return path.replace("k", "\u212a").replace("s", "\u017f")


def short_name(path: str, _: random.Random) -> str:
    return path.replace(".gitmodules", "GITMOD~1").replace(".github", "GITHUB~1").replace(".git/", "GIT~1/")


MUTATIONS: tuple[Callable[[str, random.Random], str], ...] = (
    *(upper, random_case, ignorable, full_width, mathematical, marked, trailing, leading_space),
    *(stream, separators, dotted, kelvin, short_name),
)


def test_five_thousand_mutations_and_none_is_accepted() -> None:
    dice = random.Random(20261121)
    accepted = []
    for _ in range(5_000):
        path = dice.choice(FORBIDDEN)
        for mutation in dice.sample(MUTATIONS, dice.randint(1, 3)):
            path = mutation(path, dice)
        if not refused(path):
            accepted.append(path)
    assert accepted == []


@pytest.mark.parametrize(
    "path",
    ["", "/etc/passwd", "../x", "a/../b", "a//b", "a/./b", "a\\b", "a\nb", "a\x00b", "x" * 4_001, "a/", "\udcff"],
)
def test_odd_paths_are_refused(path: str) -> None:
    assert refused(path)


@pytest.mark.parametrize(
    ("pattern", "path", "blocked"),
    [
        ("deploy/", "deploy/prod.py", True),
        ("Deploy/", "deploy/prod.py", True),
        ("deploy/", "DEPLOY/prod.py", True),
        ("deploy/", "dep\u200bloy/prod.py", True),
        ("*.sql", "db/schema.sql", True),
        ("/infra", "infra/a.tf", True),
        ("/infra", "docs/infra/a.tf", False),
        ("!.github/workflows/", ".github/workflows/ci.yml", True),
        ("deploy/", "src/deploy.py", False),
    ],
)
def test_a_configuration_only_adds_protected_paths(pattern: str, path: str, *, blocked: bool) -> None:
    change = FileChange(path=path, mode="100644", content=b"x")
    candidate = CandidatePatch(MemoryTree(BASE), Patch(base="0" * 40, changes=(change,)))
    assert (protected_paths(candidate, [pattern]).outcome == "blocked") is blocked
