"""A library that an ordinary installation does not have is named with the extra that brings it."""

import re
import tomllib
from pathlib import Path

from app.cli.extras import EXTRAS, missing_extra

ROOT = Path(__file__).parents[3]
IMPORTED_AS = {"prometheus-client": "prometheus_client", "pyjwt": "jwt"}


def test_a_missing_library_is_named_with_its_extra() -> None:
    found = missing_extra(ModuleNotFoundError("No module named 'githubkit.auth'", name="githubkit.auth"))
    assert found is not None
    assert "agent-fix[github]" in found.message
    assert "pip install '.[github]'" in found.hint
    assert missing_extra(ModuleNotFoundError(name="tomlkit")) is None


def test_table_of_extras_matches_pyproject() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = {
        (IMPORTED_AS.get(name, name), extra)
        for extra in ("e2b", "github", "notify", "server")
        for name in (re.split(r"[\[<>=;]", line)[0].lower() for line in extras[extra])
        if name != "agent-fix"
    }
    assert listed == set(EXTRAS.items())
