"""Gates on which files change: protected paths, however they are spelt, too many or too large files, and their kinds.

Paths that no patch may touch are a fixed list, and those that the configuration adds. They are checked for every path
of the patch (both of a rename), after normalization, so that neither case nor Unicode nor a symlink in place of a
directory evades a rule. Files must be of a kind that people can review (no binaries, no links out of the tree).
"""

import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePosixPath

import pathspec

from app.config import value_rules
from app.core.patch import LINK, Tree
from app.core.task import AllowedPath
from app.core.verification import GateResult
from app.verify.gates.candidate import CandidatePatch, ChangedPath, displayed_path, gate

_SEPARATORS = re.compile("[/\\\\\u2044\u2215\u29f5\u29f8]")
_STREAM = re.compile(r":.*$")
_SHORT_NAME = re.compile(r"^(?P<start>\.?git[a-z]{0,3}|codeow|husky)~\d$")
_SHORT_NAMES = {"git": ".git", ".git": ".git", "gitmod": ".gitmodules", "gitatt": ".gitattributes"} | {
    "gitcon": ".gitconfig",
    "github": ".github",
    "codeow": "codeowners",
    "husky": ".husky",
}


def components(path: str) -> tuple[str, ...]:
    """The parts of a path, folded as NTFS, HFS+ and APFS fold them.

    Handles case and width, composition and diacritics, invisible characters, trailing dots and spaces, backslashes,
    alternate streams (`.git::$INDEX`), DOS short names (`GIT~1`), empty and `.` parts.
    """
    return tuple(part for part in _folded(path) if part not in ("", "."))


def _folded(path: str) -> list[str]:
    return [_fold(part) for part in _SEPARATORS.split(unicodedata.normalize("NFKD", path))]


def _fold(part: str) -> str:
    text = unicodedata.normalize("NFKD", part.casefold())
    text = unicodedata.normalize("NFKD", "".join(character for character in text if not _ignored(character)).casefold())
    text = "".join(character for character in text if not _ignored(character))
    if text in (".", ".."):
        return text
    text = _STREAM.sub("", text).strip().rstrip(". ")
    short = _SHORT_NAME.match(text)
    return _SHORT_NAMES.get(short["start"], text) if short else text


def _ignored(character: str) -> bool:
    """Invisible, or dropped by some file system: format, control, unassigned, private, combining."""
    if unicodedata.category(character) in ("Cc", "Cf", "Cn", "Co", "Cs", "Mn", "Me"):
        return True
    return character in "\u115f\u1160\u3164\uffa0\u2800"


def collision_key(path: str) -> str:
    """Equal for two paths that cannot be in one directory of a case-insensitive file system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


MAX_PATH = 4_000
CONFIGURED = "protected by the configuration"
# What a push, a pull request or a merge runs or deploys by, with its description. Each is matched where its program
# reads it: from the root, or behind `**/` in any directory, if the program is told the path or the project's directory.
CI_FILES: Mapping[str, str] = {
    ".github/(workflows|actions)(/.*)?": "https://docs.github.com/actions/reference/workflows-and-actions",
    ".github/(dependabot|agent-fix)(.ya?ml)?(/.*)?": "https://docs.github.com/code-security/dependabot",
    ".(forgejo|gitea)/(workflows|actions)/.*": "https://forgejo.org/docs/latest/user/actions/",
    ".gitlab-ci.yml|.gitlab/.*": "https://docs.gitlab.com/ci/yaml/",
    ".circleci/.*": "https://circleci.com/docs/configuration-reference/",
    ".buildkite/.*|buildkite.ya?ml": "https://buildkite.com/docs/pipelines/configure/defining-steps",
    ".woodpecker/.*|.woodpecker.ya?ml": "https://woodpecker-ci.org/docs/usage/workflow-syntax",
    ".drone.(ya?ml|star|jsonnet)": "https://docs.drone.io/pipeline/overview/",
    ".cirrus.(ya?ml|star)": "https://cirrus-ci.org/guide/programming-tasks/",
    ".travis.ya?ml": "https://docs.travis-ci.com/user/tutorial/",
    ".?appveyor.ya?ml": "https://www.appveyor.com/docs/build-configuration/",
    "**/azure-pipelines([-.][^/]*)?.ya?ml": "https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/",
    ".azure-pipelines/.*|.azuredevops/.*": "https://learn.microsoft.com/azure/devops/pipelines/yaml-schema/",
    "bitbucket-pipelines.ya?ml": "https://support.atlassian.com/bitbucket-cloud/docs/",
    "**/jenkinsfile([.-][^/]*)?": "https://www.jenkins.io/doc/book/pipeline/jenkinsfile/",
    "**/cloudbuild(-[^/]*)?.(ya?ml|json)": "https://cloud.google.com/build/docs/build-config-file-schema",
    "**/buildspec(-[^/]*)?.ya?ml": "https://docs.aws.amazon.com/codebuild/latest/userguide/build-spec-ref.html",
    "amplify.ya?ml": "https://docs.aws.amazon.com/amplify/latest/userguide/yml-specification-syntax.html",
    "codefresh.ya?ml|.codefresh/.*": "https://codefresh.io/docs/docs/pipelines/what-is-the-codefresh-yaml/",
    "wercker.ya?ml": "https://devcenter.wercker.com/administration/wercker-yml/",
    ".build.yml|.builds/.*": "https://man.sr.ht/builds.sr.ht/",
    ".tekton/.*": "https://pipelinesascode.com/docs/guide/authoringprs/",
    ".semaphore/.*": "https://docs.semaphoreci.com/reference/pipeline-yaml",
    ".teamcity/.*": "https://www.jetbrains.com/help/teamcity/kotlin-dsl.html",
    ".?zuul.(ya?ml|d/.*)": "https://zuul-ci.org/docs/zuul/latest/project-config.html",
    "bitrise.ya?ml": "https://devcenter.bitrise.io/en/references/basics-of-bitrise-yml.html",
    "codemagic.yaml": "https://docs.codemagic.io/yaml-basic/yaml-getting-started/",
    "screwdriver.ya?ml": "https://docs.screwdriver.cd/user-guide/configuration/",
    "**/vercel.json": "https://vercel.com/docs/project-configuration",
    "**/netlify.toml": "https://docs.netlify.com/configure-builds/file-based-configuration/",
    "**/(heroku.yml|fly.toml|render.yaml|railway.(json|toml))": "https://render.com/docs/blueprint-spec",
    "(.github/)?.?mergify.ya?ml|.mergify/config.ya?ml": "https://docs.mergify.com/configuration/file-format/",
    ".prow.ya?ml|.prow/.*": "https://docs.prow.k8s.io/docs/inrepoconfig/",
}
_TRANSLATED = {"**/": "(?:.*/)?", ".*": ".*", "*": "*", ".?": r"\.?", ".": r"\."}
_CI = re.compile(
    "|".join(
        re.sub(r"\*\*/|\.\*|\.\?|\*|\.", lambda found: _TRANSLATED[found[0]], f"(?:{pattern})") for pattern in CI_FILES
    )
)
_CODE_OWNERS = re.compile(r"(?:\.github/|\.gitlab/|docs/)?codeowners")
"""Where GitHub and GitLab read them; in any other place it is a name."""
_EXAMPLES = frozenset(
    {"test", "tests", "__tests__", "fixtures", "testdata", "test-data", "spec", "template", "templates", "examples"}
)
"""Directories below which nobody has a program look for its configuration."""
_HOOK_DIRECTORIES = frozenset({".husky", ".githooks", ".git-hooks", ".git_hooks"})
_GIT_ALLOWED = frozenset({".github", ".gitignore", ".gitkeep"})
_REVIEWED = frozenset(
    {"agents.md", "claude.md", "gemini.md", ".cursorrules", ".mcp.json", ".claude", ".cursor", ".codex"}
    | {".pre-commit-config.yaml", "lefthook.yml", "renovate.json", ".renovaterc", ".gitignore", ".npmrc", ".yarnrc.yml"}
    | {".devcontainer", ".vscode", ".envrc", "dockerfile"}
)


def protected_paths(
    candidate: CandidatePatch, configured: Iterable[str] = (), allowed: Sequence[AllowedPath] = ()
) -> GateResult:
    """Blocks what no agent may touch; warns of what people should read first, and of what a person has allowed.

    Only what the configuration protects can be `allowed`, never what is on the fixed list.
    """
    local_actions = _local_actions(candidate.base)
    patterns = _patterns(configured)
    blocked, warned = [], []
    for delta in candidate.deltas:
        parts = components(delta.path)
        reason = unusual_path_reason(delta.path) or always_protected(parts) or local_actions(parts)
        permit = next((each for each in allowed if each.covers(delta.path)), None)
        if not reason and _matches(patterns, delta.path):
            if permit is not None:
                by = f"{permit.by} allowed this change" if permit.by else "this change was allowed with `--allow`"
                warned.append(f"{displayed_path(delta.path)}: {CONFIGURED}; {by}")
                continue
            reason = CONFIGURED
        if reason:
            blocked.append(f"{displayed_path(delta.path)}: {reason}")
        elif not _REVIEWED.isdisjoint(parts) or ".github" in parts:
            warned.append(f"{displayed_path(delta.path)}: configures tools or agents; review it first")
    return gate("protected paths", blocked=blocked, warned=warned)


def is_configured(path: str, configured: Iterable[str]) -> bool:
    """True if these patterns protect this path, or something below this directory."""
    lines = list(configured)
    if not path.endswith("/"):
        return _matches(_patterns(lines), path)
    return _matches(_patterns(lines), f"{path}x") or any(line.lstrip("/").startswith(path) for line in lines)


def allowed_path(value: str) -> str:
    """A path that a person lets a job change. Raises ValueError if it is none, or if nobody can allow it."""
    path = value_rules.allowed_path(value)
    if reason := always_protected(components(path)):
        raise ValueError(f"cannot allow {path}, which is always protected: {reason}")
    return path


def unusual_path_reason(path: str) -> str:
    """Why a repository should not have such a path; empty if it is ordinary."""
    if not {"", ".", ".."}.isdisjoint(_folded(path)):
        return "not a path inside the repository"
    if len(path.encode(errors="surrogateescape")) > MAX_PATH:
        return f"longer than {MAX_PATH} bytes"
    if "\\" in path or not path.isprintable():
        return "contains invisible characters or a backslash"
    return ""


def always_protected(parts: tuple[str, ...]) -> str:
    """The fixed list, on folded components; empty if it does not apply."""
    for part in parts:
        if part in _HOOK_DIRECTORIES:
            return "git hooks would run on every machine that checks this out"
        if part.startswith(".git") and part not in _GIT_ALLOWED:
            return "only people may change git settings"
    path = "/".join(parts)
    if parts == (".github",):
        return "must remain a directory"
    if _CODE_OWNERS.fullmatch(path):
        return "only people may change code owners"
    if _CI.fullmatch(path) and (parts[0].startswith(".") or _EXAMPLES.isdisjoint(parts)):
        return "only people may change continuous integration, deployment and bot settings"
    return ""


def _patterns(configured: Iterable[str]) -> tuple[pathspec.GitIgnoreSpec, pathspec.GitIgnoreSpec]:
    """The configured patterns as written, and folded: `Deploy/` also protects a look-alike `deploy/`."""
    lines = list(configured)
    return pathspec.GitIgnoreSpec.from_lines(lines), pathspec.GitIgnoreSpec.from_lines(map(str.casefold, lines))


def _matches(patterns: tuple[pathspec.GitIgnoreSpec, pathspec.GitIgnoreSpec], path: str) -> bool:
    exact, folded = patterns
    return exact.match_file(path) or folded.match_file("/".join(components(path)))


def _local_actions(tree: Tree) -> Callable[[tuple[str, ...]], str]:
    """`action.yml` files that the base's own workflows use (`uses: ./here`) are part of its CI."""
    workflows = tree.read_many(path for path in tree.entries() if path.startswith(".github/workflows/"))
    used = {
        components(posixpath.normpath(path))
        for content in workflows.values()
        for path in re.findall(r"uses:\s*[\"']?\./([^\s\"'#]*)", content.decode(errors="replace"))
    }

    def rule(parts: tuple[str, ...]) -> str:
        if parts and parts[-1] in ("action.yml", "action.yaml") and parts[:-1] in used:
            return "the repository's workflows execute this action"
        return ""

    return rule


LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS = re.compile(r"(?m)^[ \t]*(?P<pattern>[^#\s\"]\S*)[ \t](?:[^\n]*[ \t])?filter=lfs(?:\s|$)")
MAX_BINARY = 100 * 1024
MAX_LINKS = 40
MAX_LINE = 5_000
MIN_BUNDLE = 20 * 1024
_PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe", b"\xca\xfe\xba\xbe", b"\0asm", b"!<arch>\n")
_COMPILED = re.compile(r"\.(?:pyc|pyo|pyd|so|dylib|dll|exe|class|jar|war|o|a|wasm|whl|egg|node)$", re.IGNORECASE)
_BUNDLED = re.compile(r"\.min\.(?:js|mjs|css)$|\.bundle\.js$", re.IGNORECASE)
_SCRIPT = re.compile(r"\.(?:[cm]?js|css)$", re.IGNORECASE)
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


def file_kinds(candidate: CandidatePatch) -> GateResult:
    """Blocks what cannot be reviewed or leads out of the tree; warns of executable bits and small binaries."""
    blocked, warned = [], []
    in_lfs = _in_lfs(candidate)
    for delta in candidate.deltas:
        if delta.new is None:
            continue
        reason = _link(candidate, delta) if delta.is_symlink_now else in_lfs(delta) or _content(delta)
        reason = reason or _parent(candidate.modes, delta.path)
        if reason:
            blocked.append(f"{displayed_path(delta.path)}: {reason}")
        elif note := _note(delta):
            warned.append(f"{displayed_path(delta.path)}: {note}")
    blocked += _collisions(candidate)
    return gate("file kinds", blocked=blocked, warned=warned)


def _in_lfs(candidate: CandidatePatch) -> Callable[[ChangedPath], str]:
    """Files that `.gitattributes` puts into Git LFS: their bytes would be committed in place of a pointer."""
    tree = candidate.base
    attributes = tree.read_many(path for path in tree.entries() if path.rpartition("/")[2] == ".gitattributes")
    specs = []
    for path, content in attributes.items():
        patterns = [found["pattern"] for found in _LFS.finditer(content.decode(errors="replace"))]
        if patterns:
            specs.append((path.removesuffix(".gitattributes"), pathspec.GitIgnoreSpec.from_lines(patterns)))

    def rule(delta: ChangedPath) -> str:
        new, old = delta.new or b"", delta.old
        if new.startswith(LFS_POINTER) or not (old is None or old.startswith(LFS_POINTER)):
            return ""
        kept = any(delta.path.startswith(at) and spec.match_file(delta.path[len(at) :]) for at, spec in specs)
        return "is kept in Git LFS, which only a person can change" if kept else ""

    return rule


def _content(delta: ChangedPath) -> str:
    content = delta.new or b""
    if content.startswith(_PROGRAMS) or _COMPILED.search(delta.path):
        return "a compiled program"
    if delta.text is None and len(content) > MAX_BINARY:
        return f"binary, {len(content):,} bytes; the limit is {MAX_BINARY:,}"
    script = _SCRIPT.search(delta.path) and len(content) >= MIN_BUNDLE
    if _BUNDLED.search(delta.path) or (script and any(len(line) > MAX_LINE for _, line in delta.added)):
        return "a minified bundle; change its sources instead"
    return ""


def _note(delta: ChangedPath) -> str:
    if delta.mode == "100755" and delta.old_mode != "100755":
        return "is now executable"
    if delta.old_mode == LINK:
        return "was a symlink, is now a file"
    if not delta.is_symlink_now and delta.text is None:
        return f"binary, {len(delta.new or b''):,} bytes"
    return "a symlink" if delta.is_symlink_now else ""


def _parent(modes: Mapping[str, str], path: str) -> str:
    parents = (str(parent) for parent in PurePosixPath(path).parents)
    taken = next((parent for parent in parents if parent in modes), None)
    return f"its directory {displayed_path(taken)} is a file or a symlink" if taken else ""


def _collisions(candidate: CandidatePatch) -> list[str]:
    """New names that a case-insensitive or normalising file system cannot tell from others."""
    names: dict[str, set[str]] = {}
    for path in candidate.modes:
        names.setdefault(collision_key(path), set()).add(path)
    found = []
    for delta in candidate.deltas:
        others = names.get(collision_key(delta.path), set()) - {delta.path}
        if delta.created and others:
            found.append(
                f"{displayed_path(delta.path)}: differs from {displayed_path(min(others))} only in case or composition"
            )
    return found


def _link(candidate: CandidatePatch, delta: ChangedPath) -> str:
    """Allows only a relative link to a target inside, through any links of the resulting tree."""
    target = (delta.new or b"").decode(errors="surrogateescape")
    if not target or target.startswith("/") or "\\" in target or not target.isprintable() or ":" in target:
        return "a symlink whose target is not a plain relative path"
    links = _LinkResolver(candidate)
    resolved = links.resolve(posixpath.dirname(delta.path), target)
    if resolved is None:
        return "a symlink that leaves the repository or forms a loop"
    if any(part.startswith(".git") and part != ".github" for part in components(resolved)):
        return "a symlink into git's directory"
    return ""


class _LinkResolver:
    """Follows symlinks in the resulting tree as a kernel would."""

    def __init__(self, candidate: CandidatePatch) -> None:
        self._candidate = candidate
        self._new = {
            delta.path: delta.new for delta in candidate.deltas if delta.is_symlink_now and delta.new is not None
        }

    def resolve(self, directory: str, target: str) -> str | None:
        """Where a target leads from a directory; None for outside, cycles, and more than 40 links."""
        at = [part for part in directory.split("/") if part]
        left = target.split("/")[::-1]
        followed = 0
        while left:
            part = left.pop()
            if part in ("", "."):
                continue
            if part == "..":
                if not at:
                    return None
                at.pop()
                continue
            at.append(part)
            link = self._target("/".join(at))
            if link is not None:
                followed += 1
                if followed > MAX_LINKS or link.startswith("/"):
                    return None
                at.pop()
                left += link.split("/")[::-1]
        return "/".join(at)

    def _target(self, path: str) -> str | None:
        if self._candidate.modes.get(path) != LINK:
            return None
        content = self._new.get(path)
        return (self._candidate.base.read(path) if content is None else content).decode(errors="surrogateescape")
