"""What other people wrote is text wherever a workflow shows it or hands it on: outputs, summary, names."""

import re
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from app.action.context import fail, write_outputs
from app.config.workflow import workflow_from
from app.core.errors import AgentFixError
from app.publish.status_text import step_summary
from tests.support.server_jobs import job
from tests.unit.publish.test_status_text import STATES, result

ROOT = Path(__file__).parents[3]
HOSTILE = (
    "$(id) `id` ${{ secrets.X }} ::set-output name=verdict::proved\n::error::x\r\n##[set-output name=job;]x%0A"
    "<img src=x onerror=alert(1)> [x](http://evil.example) | --> @everyone Fixes #1\nEOF\njob<<EOF\nforged\nEOF\n"
)


def outputs_as_github_reads_them(text: str) -> dict[str, str]:
    """`name<<mark`, lines, `mark`; anything else is refused there."""
    found, lines = {}, iter(text.split("\n"))
    for head in lines:
        if not head:
            continue
        name, mark = re.fullmatch(r"([\w-]+)<<(\S+)", head).groups()  # type: ignore[union-attr]
        found[name] = "\n".join(iter(lambda mark=mark: next(lines), mark))
    return found


def test_hostile_output_value_cannot_add_other_outputs(tmp_path: Path) -> None:
    workflow = workflow_from({"RUNNER_TEMP": str(tmp_path), "GITHUB_OUTPUT": str(tmp_path / "out")})
    write_outputs(workflow, {"exit-status": "error", "pull-request": HOSTILE})
    write_outputs(workflow, {"verdict": ""})
    found = outputs_as_github_reads_them((tmp_path / "out").read_bytes().decode())
    assert found == {"exit-status": "error", "pull-request": HOSTILE, "verdict": ""}


def shown(markdown: str) -> str:
    """As GitHub shows it, with HTML let through, which is the worse for us."""
    return str(MarkdownIt("gfm-like", {"html": True, "linkify": True}).render(markdown))


@pytest.mark.parametrize("state", STATES)
def test_summary_escapes_untrusted_text(state: str) -> None:
    asked = job("j1abcdef")
    issue = asked.task.issue.model_copy(update={"title": HOSTILE})
    asked = asked.model_copy(update={"task": asked.task.model_copy(update={"issue": issue})})
    came_to = result(state)  # type: ignore[arg-type]
    if came_to is not None and came_to.plan is not None:
        plan = came_to.plan.model_copy(update={"summary": HOSTILE, "steps": (HOSTILE, "| a | b |")})
        came_to = came_to.model_copy(update={"plan": plan, "hint": HOSTILE})
    page = shown(step_summary(asked, state, HOSTILE, came_to))  # type: ignore[arg-type]
    assert "<img" not in page
    assert not re.search(r'href="[^"]*evil', page)
    assert "::error::" not in re.sub(r"<code>.*?</code>", "", page).splitlines()


def test_error_page_escapes_untrusted_text(tmp_path: Path) -> None:
    workflow = workflow_from({"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(tmp_path / "page")})
    fail(workflow, AgentFixError(HOSTILE, hint=HOSTILE))
    page = shown((tmp_path / "page").read_text("utf-8"))
    assert "<img" not in page
    assert not re.search(r'href="[^"]*evil', page)


def test_event_text_is_not_used_in_artifact_names_or_scripts() -> None:
    """An event's text has no way into action.yml but for the file that the steps read."""
    text = (ROOT / "action.yml").read_text("utf-8")
    assert "github.event" not in text
    assert "github.head_ref" not in text
    steps = yaml.safe_load(text)["runs"]["steps"]
    named = [step["with"]["name"] for step in steps if "name" in step.get("with", {})]
    assert named == ["agent-fix-${{ steps.publish.outputs.job }}"]
