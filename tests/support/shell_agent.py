"""A coding agent of nothing but a shell, as a package in an index of its own: installed, started and stopped as any."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path

VERSION = "1.0"
RECIPE = f"""
name = "parrot"
title = "Parrot"
client = "pip"
packages = ["parrot=={VERSION}"]
wire = "chat"
command = ["$tools/bin/python", "-I", "-m", "parrot", "$task", "$base", "$token", "$model"]
"""
PROGRAM = """
import json, subprocess, sys, urllib.request
task, base, token, model = sys.argv[1:]
properties = dict(command=dict(type="string"))
tool = dict(name="bash", parameters=dict(type="object", properties=properties, required=["command"]))
messages = [dict(role="user", content=task)]
ended = False
while not ended:
    asked = dict(model=model, messages=messages, tools=[dict(type="function", function=tool)])
    headers = {"authorization": "Bearer " + token, "content-type": "application/json"}
    request = urllib.request.Request(base + "/v1/chat/completions", json.dumps(asked).encode(), headers)
    answer = json.load(urllib.request.urlopen(request))["choices"][0]["message"]
    messages.append(answer)
    calls = answer.get("tool_calls") or []
    ended = not calls
    for call in calls:
        command = json.loads(call["function"]["arguments"])["command"]
        ended = ended or "COMPLETE_TASK" in command
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        messages.append(dict(role="tool", tool_call_id=call["id"], content=done.stdout + done.stderr))
"""


_MEMORY = {
    "import json": "import json, pathlib",
    "model = sys.argv[1:]": "model, *again = sys.argv[1:]",
    "messages = [": "kept = pathlib.Path(__file__).with_name('talk.json')\n"
    "messages = json.loads(kept.read_text()) if again == ['again'] else []\nmessages += [",
    "    body = json": "    kept.write_text(json.dumps(messages))\n    body = json",
    "    asked = dict": "    kept.write_text(json.dumps(messages))\n    asked = dict",
}


def remembering(program: str) -> str:
    """The same with a conversation that it goes on with where its last argument is `again`."""
    for before, after in _MEMORY.items():
        program = program.replace(before, after)
    return program


def settle(directory: Path, *versions: str, program: str = PROGRAM) -> Mapping[str, str]:
    """The recipe, and an index that has these versions; returns the environment that agent-fix finds them by."""
    recipes, pages = directory / "recipes", directory / "index" / "parrot"
    recipes.mkdir(parents=True)
    pages.mkdir(parents=True)
    (recipes / "parrot.toml").write_text(RECIPE)
    names = [_wheel(pages, version, program) for version in versions or (VERSION,)]
    (pages / "index.html").write_text("".join(f'<a href="{name}">{name}</a>' for name in names))
    return {"AGENT_FIX_RUNNERS": str(recipes), "PIP_INDEX_URL": f"file://{directory / 'index'}"}


def _wheel(place: Path, version: str, program: str) -> str:
    named = f"parrot-{version}.dist-info"
    files = {
        "parrot.py": program,
        f"{named}/METADATA": f"Metadata-Version: 2.1\nName: parrot\nVersion: {version}\n",
        f"{named}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{name},sha256={_digest(text)},{len(text)}" for name, text in files.items()]
    with zipfile.ZipFile(place / f"parrot-{version}-py3-none-any.whl", "w") as wheel:
        for name, text in {**files, f"{named}/RECORD": "\n".join([*rows, f"{named}/RECORD,,"])}.items():
            wheel.writestr(name, text)
    return f"parrot-{version}-py3-none-any.whl"


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
