"""Code without any use may be removed; what may be in use, in whatever way, may not."""

import pytest

from app.core.patch import FileChange, Patch
from app.verify.sources import analysis
from tests.support.memory_tree import MemoryTree

TOTAL = "def total(xs):\n    return sum(xs) + 1\n"
FIXED = TOTAL.replace(" + 1", "")
GUARD = "def total(xs):\n    check(xs)\n    return sum(xs) + 1\n"


def put_back(removed: str, path: str = "shop/sums.py", body: str = TOTAL, **others: str) -> list[str]:
    """What is put back where a fix also removes this text; underscores are for the `/` and `.` of other paths."""
    old = f"{removed}\n\n\n{body}"
    names = {
        name.replace("__", "/").replace("_py", ".py").replace("_toml", ".toml"): text for name, text in others.items()
    }
    base = MemoryTree({path: old.encode(), **{name: text.encode() for name, text in names.items()}})
    change = FileChange(path=path, mode="100644", content=FIXED.encode())
    found = analysis.new_conditions(base, Patch(base="b", changes=(change,)))
    return [one.says for one in found.get(path, ()) if one.kind == "removed"]


@pytest.mark.parametrize(
    "removed",
    [
        "import os",
        "import os, re",
        "from typing import (\n    Any,\n    cast,\n)",
        "import json as _json",
        "def _old(xs):\n    return [x for x in xs]",
        "_LIMIT = 3",
    ],
)
def test_unused_code_may_be_removed(removed: str) -> None:
    elsewhere = "import os\n\nfrom shop.sums import total\n\nLIMIT = os.sep\n"
    assert put_back(removed, shop__other_py=elsewhere) == []


def test_a_quiet_log_line_may_be_removed() -> None:
    body = 'def total(xs):\n    logger.debug("of %s", xs)\n    n = len(xs)\n    return sum(xs) + 1\n'
    fixed = body.replace('    logger.debug("of %s", xs)\n', "").replace(" + 1", "")
    for text, count in (
        ("", 0),
        (".warning", 1),
        (".debug(xs.pop() or ", 1),
    ):
        old = body.replace(".debug", text) if text == ".warning" else body.replace(".debug(", text or ".debug(")
        base = MemoryTree({"sums.py": old.encode()})
        change = FileChange(path="sums.py", mode="100644", content=fixed.encode())
        found = analysis.new_conditions(base, Patch(base="b", changes=(change,)))["sums.py"]
        assert len([one for one in found if one.kind == "removed"]) == count, old


@pytest.mark.parametrize(
    ("removed", "others"),
    [
        ("import shop.plugins", {}),
        ("from shop.plugins import audit", {}),
        ("import readline", {}),
        ("from os import *", {}),
        ("import os\n\n__all__ = ['os']", {}),
        ("import os", {"shop__other_py": "from shop.sums import os, total\n"}),
        ("import os", {"shop__other_py": "from .sums import (\n    total,\n    os,\n)\n"}),
        ("import os", {"shop__other_py": "from .sums import *\n"}),
        ("import os", {"shop__other_py": "import shop.sums\n\nshop.sums.os.sep\n"}),
        ("import os", {"shop__other_py": "import shop.sums as s\n\ns.os.sep\n"}),
        ("import os", {"shop__other_py": "from shop import sums\n\ngetattr(sums, 'o' + 's')\n"}),
        ("def old(xs):\n    return xs", {}),
        ("@register\ndef _old(xs):\n    return xs", {}),
        ("def _old(xs=register()):\n    return xs", {}),
        ("class _Old(Base):\n    pass", {}),
        ("_OLD = register(1)", {}),
        ("def _old(xs):\n    return xs", {"pyproject_toml": '[project.scripts]\nold = "shop.sums:_old"\n'}),
        ("def _old(xs):\n    return xs", {"shop__other_py": "from shop.sums import _old\n"}),
        (
            "def _old(xs):\n    return xs",
            {"shop__other_py": "import inspect\n\nfrom . import sums\n\ninspect.getmembers(sums)\n"},
        ),
        ("def _old(xs):\n    return xs\n\n\nNAMES = ['_old']", {}),
        ("def _old(xs):\n    return xs\n\n\nALL = [globals()['_' + name] for name in ('old',)]", {}),
        ("def _old(xs):\n    return xs\n\n\nOLD = getattr(here, '_' + 'old')".replace("'_'", "name"), {}),
    ],
)
def test_code_that_may_be_in_use_is_put_back(removed: str, others: dict[str, str]) -> None:
    assert len(put_back(removed, **others)) == 1


def test_a_guard_and_its_import_are_put_back() -> None:
    """The call alone would fail for its missing name, and so seem to be noticed."""
    imported = "`from shop.guards import check` is put back as it was"
    assert imported in put_back("from shop.guards import check", body=GUARD)
    defined = "def _check(xs):\n    if not xs:\n        raise ValueError"
    assert any("def _check" in one for one in put_back(defined, body=GUARD.replace("check", "_check")))
    assert "`from operator import index as check` is put back as it was" in put_back(
        "from operator import index as check", body=GUARD
    )
