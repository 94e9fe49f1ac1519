"""`agent-fix demo`: the whole engine on the bundled sample; only the model's answers are recorded."""

import argparse
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from app.core.errors import AgentFixError, ExitCode, OutputError
from app.core.task import Person
from app.repo.git_command import Git

DATE = "2026-01-05T09:00:00+00:00"
AUTHOR = Person(name="Sample Author", email="sample@example.com")
MARK = ".agent-fix-demo"
"""Marks a directory that an earlier demo made, and that a later one may replace."""


def demo_command(arguments: argparse.Namespace) -> int:
    say = partial(print, file=sys.stderr if arguments.json else sys.stdout, flush=True)
    _introduce(arguments.model, say)
    from app.cli.fix import FixOptions, fix  # noqa: PLC0415  # takes seconds on a cold start, after the first lines
    from app.cli.result_screen import own_command  # noqa: PLC0415
    from app.config.repository import NO_DEFAULTS  # noqa: PLC0415
    from app.config.settings import read_settings  # noqa: PLC0415

    out: Path = arguments.out.expanduser().resolve()
    settings = read_settings(out / "state")
    if arguments.model is None:  # the operator's choice of a model is for models that cost something
        settings = replace(settings, defaults=NO_DEFAULTS)
    files = demo_files()
    repository = _fresh_repository(out, files / "sample")
    recording = files / "recorded.jsonl"
    model = arguments.model or f"recorded/{recording}"
    if arguments.model is None and not recording.is_file():
        raise AgentFixError("The recorded answers are missing from this installation.", code=ExitCode.MODEL)
    options = FixOptions(
        repo=repository,
        issue=files / "issue.md",
        model=model,
        out=out,
        record=arguments.record,
        restart=True,
        json=arguments.json,
    )
    return fix(options, settings, afterwards=lambda: say(_NEXT.format(command=own_command())))


_NEXT = """
On your own repository, with a model and its key in the environment:
  {command} fix --repo PATH --issue FILE --model PROVIDER/MODEL"""


def demo_files() -> Path:
    """The directory `demo` of the checkout, or its copy in the wheel."""
    own = Path(__file__).resolve().parent
    return next(place for place in (own / "demo_data", own.parents[1] / "demo") if place.is_dir())


def _introduce(model: str | None, say: Callable[[str], None]) -> None:
    if model is None:
        say("The model's answers are recorded. Everything else is real and happens now, in about 20 seconds:")
        say("the sandbox, every command, the test suites, the verification and the commit.\n")
    else:
        say(f"This demo uses {model}; everything happens now.\n")


def _fresh_repository(out: Path, sample: Path) -> Path:
    """The sample as a git repository with one commit. An earlier demo there is replaced; anything else is not."""
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(
            f"{out} is not empty and is not an earlier demo.", hint="Choose another directory with --out DIR."
        )
    repository = out / "repo"
    try:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(sample, repository, ignore=shutil.ignore_patterns("__pycache__"))
        (out / MARK).touch()
    except OSError as error:
        raise OutputError(f"{out} cannot be written: {error.strerror}.") from error
    git = Git("-C", str(repository), "-c", f"user.name={AUTHOR.name}", "-c", f"user.email={AUTHOR.email}")
    git("init", "--quiet", "--initial-branch=main")
    git("add", "--all")
    dates = {"GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
    git("commit", "--quiet", "--message=The sample, as its author left it", env=dates)
    return repository
