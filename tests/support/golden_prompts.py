"""Every brief's example and what it is rendered to; `python -m tests.support.golden_prompts` writes the rendered ones
anew."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from app.agent.prompts import render_brief, render_planning, render_start
from app.config.repository import DIRECTORY, parse_overrides
from app.core.issue_file import parse_issue
from app.core.job import Budget, Job
from app.core.plan import Plan
from app.core.task import Issue, KindDecision, Task, TaskOrigin, TaskSection, TaskSignals, WorkType, kind_of
from app.core.yaml_and_toml import read_yaml

FOLDER = Path(__file__).parent / "prompts"
RENDERED = ".brief.md"
PLAN = Plan(summary="Do it.", candidate_files=("money.py",), steps=("See it fail.", "Mend it."))


@dataclass(frozen=True)
class Example:
    """An issue file whose front matter also says what else there is to the task."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def golden(self) -> Path:
        return FOLDER / f"{self.name}{RENDERED}"

    @cached_property
    def more(self) -> Mapping[str, Any]:
        document = read_yaml(self.path.read_text("utf-8").split("\n---\n")[0].removeprefix("---\n").encode())
        assert not document.problems
        return cast("Mapping[str, Any]", document.value)

    @cached_property
    def issue(self) -> Issue:
        return parse_issue(self.path.read_bytes()).model_copy(update={"number": 7})

    @cached_property
    def kinded(self) -> KindDecision:
        work = cast("WorkType", self.more.get("work", "issue"))
        return kind_of(TaskSignals(self.issue.title, self.more.get("request", ""), self.issue.labels, work))

    @cached_property
    def job(self) -> Job:
        on_pull = "work" in self.more
        origin = TaskOrigin(installation=1, repository=2, number=7, is_pull_request=on_pull, actor=3)
        task = Task(
            repository="octo/shop",
            issue=self.issue,
            base="0" * 40,
            base_ref="main",
            slug="example",
            origin=origin,
            request=self.more.get("request", ""),
            sections=tuple(TaskSection(**section) for section in self.more.get("sections", ())),
            kind=self.kinded.kind,
            kind_reason=self.kinded.reason,
            fixed_by=self.more.get("fixed_by", ""),
        )
        return Job(
            id="example",
            task=task,
            branch="b",
            budget=Budget(),
            model="m",
            aim=self.more.get("aim", "fix"),
            conflicts=tuple(self.more.get("conflicts", ())),
            created_at=datetime(2026, 1, 1, tzinfo=UTC),
        )

    def render(self) -> str:
        planning = self.more.get("planning", False)
        files = {f"{DIRECTORY}/{name}.md": text.encode() for name, text in self.more.get("overrides", {}).items()}
        brief = render_brief(
            self.job,
            repository_map="money.py\n  def round_cents(value)",
            instructions=[("AGENTS.md", "Use tabs.")],
            overrides=parse_overrides(files),
            address="https://github.com/octo/shop/issues/7",
            ignored="*.orig",
        )
        if planning:
            planned = render_planning(self.job, parse_overrides(files), [("python", "Runs in the project.")])
            return f"{brief}\n\n{planned}\n"
        plan = None if "work" in self.more else PLAN
        start = render_start(self.job, brief, plan=plan)
        return f"{brief}\n\n{start}\n"


def examples() -> list[Example]:
    return [Example(path) for path in sorted(FOLDER.glob("*.md")) if not path.name.endswith(RENDERED)]


def main() -> None:
    for example in examples():
        example.golden.write_text(example.render(), "utf-8")


if __name__ == "__main__":
    main()
