"""Programs of others that were installed beside our Python, and judge what we ship."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def tool(name: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """What it says of us, started at the top of the checkout."""
    program = Path(sys.executable).with_name(name)
    if not program.exists():
        pytest.skip(f"NOT TESTED by {name}: it is not installed")
    return subprocess.run([program, *words], cwd=ROOT, capture_output=True, text=True, check=False)
