"""mini-swe-agent beside us, in a virtual environment of its own that goes with the temporary directory."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from bench.endpoint import MODEL
from bench.ground import BenchDirectory

MINI = "mini-swe-agent>=2.4,<2.5"
ENVIRONMENT = {"MSWEA_CONFIGURED": "true", "MSWEA_COST_TRACKING": "ignore_errors", "MSWEA_SILENT_STARTUP": "1"}


def install(root: Path) -> Path:
    """Its console script, from the package index that pip is configured for; with our LiteLLM, to be fair."""
    environment = root / "peers"
    subprocess.run((sys.executable, "-m", "venv", str(environment)), check=True)
    pip = (str(environment / "bin" / "python"), "-m", "pip", "install", "-qq", "--disable-pip-version-check")
    subprocess.run((*pip, MINI, f"litellm=={version('litellm')}"), check=True)
    return environment / "bin" / "mini"


def command(mini: Path, ground: BenchDirectory) -> list[str]:
    task = ground.issue.read_text()
    places = ("-o", str(ground.root / "mini.json"))
    return [str(mini), "-y", "--exit-immediately", "-m", MODEL, "-t", task, "-l", "0", *places]


def environment(ground: BenchDirectory) -> dict[str, str]:
    """Its home is the temporary directory, so that nobody's settings count."""
    return ground.environment | ENVIRONMENT | {"HOME": str(ground.root), "XDG_CONFIG_HOME": str(ground.root / "config")}
