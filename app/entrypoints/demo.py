"""`agent-fix demo`: the whole engine on the bundled sample; only the model's answers are recorded."""

import argparse
import shutil
import subprocess
from importlib import resources
from pathlib import Path

from app.entrypoints.local import FixOptions, fix
from app.errors import AgentFixError, ExitCode, OutputError
from app.settings import read_settings

DATE = "2026-01-05T09:00:00+00:00"
OURS = "repo"
"""What a directory must hold, besides nothing at all, to be taken for an earlier demo's and made anew."""


def demo_command(arguments: argparse.Namespace) -> int:
    out: Path = arguments.out.expanduser().resolve()
    sample = Path(str(resources.files("app.demo")))
    repository = _fresh_repository(out, sample / "sample")
    recording = sample / "recorded.jsonl"
    model = arguments.model or f"recorded/{recording}"
    if arguments.model is None and not recording.is_file():
        raise AgentFixError("The recorded answers are missing from this installation.", code=ExitCode.MODEL)
    _introduce(arguments.model)
    options = FixOptions(
        repo=repository, issue=sample / "issue.md", model=model, out=out, record=arguments.record, restart=True
    )
    return fix(options, read_settings(out / "state"))


def _introduce(model: str | None) -> None:
    if model is None:
        print("This demo plays the recorded answers of one real model run. Everything else is real and happens now:")
        print("the sandbox, every command, the test suites, the verification and the commit.")
        print("With a model of your own: agent-fix demo --model NAME (and its key in the environment).")
    else:
        print(f"This demo asks {model}; everything happens now.")
    print()


def _fresh_repository(out: Path, sample: Path) -> Path:
    """The sample as a git repository with one commit. An earlier demo there is replaced; anything else is not."""
    if out.exists() and (not out.is_dir() or (any(out.iterdir()) and not (out / OURS).is_dir())):
        raise OutputError(f"{out} is not empty, and not an earlier demo.", hint="Choose another one with --out DIR.")
    repository = out / OURS
    try:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(sample, repository, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}.") from error
    identity = ["-c", "user.name=Sample Author", "-c", "user.email=sample@example.com", "-c", "commit.gpgsign=false"]
    dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE, "PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/"}
    for command in (
        ["init", "--quiet", "--initial-branch=main"],
        ["add", "--all"],
        [*identity, "commit", "--quiet", "--message=The sample, as its author left it"],
    ):
        subprocess.run(["git", "-C", str(repository), *command], env=dates, check=True)
    return repository
