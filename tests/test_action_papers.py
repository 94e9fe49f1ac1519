"""The Action's own papers: action.yml looked over by others' tools, and told in the README as it is."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
BEGIN, END = "<!-- inputs of action.yml -->", "<!-- /inputs of action.yml -->"


def tool(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"NOT LOOKED OVER by {name}: it is not installed")
    return found


def looked_over(*words: str | Path) -> None:
    done = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_zizmor_finds_nothing() -> None:
    looked_over(tool("zizmor"), "--offline", "--no-progress", "--persona", "auditor", "action.yml", ".github/workflows")


def test_the_action_is_what_its_schema_says() -> None:
    looked_over(tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", "action.yml")


def test_our_workflows_are_what_their_schema_says() -> None:
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    looked_over(tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *workflows)


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """It reads actions through the workflows that use them: one that gives every input, and asks for every output."""
    workflow = {
        "name": "all",
        "on": {"issues": {"types": ["labeled"]}},
        "jobs": {
            "fix": {
                "runs-on": "ubuntu-24.04",
                "steps": [
                    {"uses": "./", "id": "fix", "with": dict.fromkeys(ACTION["inputs"], "x")},
                    {
                        "run": "env",
                        "env": {
                            f"OUT_{number}": f"${{{{ steps.fix.outputs.{name} }}}}"
                            for number, name in enumerate(ACTION["outputs"])
                        },
                    },
                ],
            }
        },
    }
    place = tmp_path / ".github" / "workflows"
    place.mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    shutil.copy(ROOT / "action.yml", tmp_path)
    (place / "all.yml").write_text(yaml.safe_dump(workflow))
    looked_over(tool("actionlint"), "-no-color", place / "all.yml")
    for ours in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        looked_over(tool("actionlint"), "-no-color", ours)


def test_no_expression_is_pasted_into_a_script() -> None:
    """What people wrote reaches a shell through its environment, as text."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step.get("run", "")


def test_what_is_used_is_pinned_by_its_commit() -> None:
    used = [step["uses"] for step in ACTION["runs"]["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w/-]+@[0-9a-f]{40}", name)] == []


def test_the_token_and_the_models_keys_are_in_different_steps() -> None:
    steps = {step["id"]: step.get("env", {}) for step in ACTION["runs"]["steps"] if "id" in step}
    with_token = {name for name, env in steps.items() if "inputs.token" in str(env) or "github.token" in str(env)}
    with_keys = {name for name, env in steps.items() if "inputs.model-keys" in str(env)}
    assert with_token == {"sweep", "receive", "publish"}
    assert with_keys == {"ready", "solve"}
    same = [{**step["env"], "AGENT_FIX_ISSUE": ""} for step in ACTION["runs"]["steps"] if step.get("id") in with_keys]
    assert same[0] == same[1], "what is made ready is started as the solving step is"


def test_the_environment_is_kept_before_anything_foreign_is_executed() -> None:
    names = [step["name"] for step in ACTION["runs"]["steps"]]
    assert names.index("Receive") < names.index("Keep the environment") < names.index("Solve")
    build = next(step["run"] for step in ACTION["runs"]["steps"] if step["name"] == "Build the environment")
    assert "--require-hashes" in build
    for step in ACTION["runs"]["steps"]:
        for command in re.findall(r'(?<!--python )"\$(?:PYTHON|VENV/bin/python)" (\S+)', step.get("run", "")):
            assert command == "-I", step["name"]


def readme_table() -> str:
    """The README's part about inputs and outputs, as action.yml says it."""
    lines = ["| Input | What it is | Default |", "|---|---|---|"]
    for name, given in ACTION["inputs"].items():
        default = str(given.get("default", ""))
        shown = "`github.token`" if "github.token" in default else f"`{default}`" if default else ""
        lines.append(f"| `{name}` | {_cell(given['description'])} | {shown} |")
    lines += ["", "| Output | What it is |", "|---|---|"]
    lines += [f"| `{name}` | {_cell(given['description'])} |" for name, given in ACTION["outputs"].items()]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def test_the_readme_tells_the_inputs_and_outputs() -> None:
    """`python -m tests.test_action_papers` writes them anew."""
    text = (ROOT / "README.md").read_text()
    assert BEGIN in text
    assert text.partition(BEGIN)[2].partition(END)[0].strip() == readme_table()


if __name__ == "__main__":
    before, _, rest = (ROOT / "README.md").read_text().partition(BEGIN)
    (ROOT / "README.md").write_text(f"{before}{BEGIN}\n{readme_table()}\n{END}{rest.partition(END)[2]}")
