"""Code without any use may be removed; what may be in use, in whatever way, may not."""

import pytest

from app.core.patch import FileChange, Patch
from app.verify.sources.analysis import SourceAnalysis
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
    return removed_by(old, FIXED, path, **names)


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


@pytest.mark.parametrize(
    ("made", "line", "count"),
    [
        ("import logging\n\nlogger = logging.getLogger(__name__)", 'logger.debug("of %s", xs)', 0),
        ("from loguru import logger", 'logger.info("of {}", xs)', 0),
        ("import logging\n\nlogger = logging.getLogger(__name__)", 'logger.warning("of %s", xs)', 1),
        ("import logging\n\nlogger = logging.getLogger(__name__)", "logger.debug(xs.pop())", 1),
        ("from shop.books import Journal\n\nlogger = Journal()", "logger.info(xs)", 1),
    ],
)
def test_a_quiet_line_of_a_logger_may_be_removed(made: str, line: str, count: int) -> None:
    old = f"{made}\n\n\ndef total(xs):\n    {line}\n    n = len(xs)\n    return sum(xs) + 1\n"
    assert len(removed_by(old, old.replace(f"    {line}\n", "").replace(" + 1", ""))) == count


def removed_by(old: str, new: str, path: str = "shop/sums.py", **others: str) -> list[str]:
    base = MemoryTree({name: text.encode() for name, text in {path: old, **others}.items()})
    change = FileChange(path=path, mode="100644", content=new.encode())
    found = SourceAnalysis(base, Patch(base="b", changes=(change,))).new_conditions
    assert found is not None
    return [one.says for one in found.get(path, ()) if one.kind == "removed"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("import re\n\n\ndef f(x):\n    return re.split(' ', x)\n", "def f(x):\n    return x.split()\n"),
        ("def f(x):\n    return _old(x)\n\n\ndef _old(x):\n    return x + 1\n", "def f(x):\n    return x\n"),
        (
            "def f(x):\n    return _old(x) + 1\n\n\ndef _old(x):\n    return x\n",
            "def f(x):\n    return _new(x)\n\n\ndef _new(x):\n    return x\n",
        ),
    ],
)
def test_code_that_only_replaced_lines_used_may_be_removed(old: str, new: str) -> None:
    assert removed_by(old, new) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "import re\n\n\ndef f(x):\n    return re.split(' ', x)\n",
            "def f(x):\n    return getattr(here, x)\n",
        ),
        (
            "from shop.guards import check\n\n\ndef f(x):\n    check(x)\n    return x + 1\n",
            "def f(x):\n    return x\n",
        ),
        (
            "def f(x):\n    _check(x)\n    return x + 1\n\n\ndef _check(x):\n    assert x\n",
            "def f(x):\n    return x\n",
        ),
    ],
)
def test_code_that_a_lost_line_used_is_put_back(old: str, new: str) -> None:
    assert removed_by(old, new)


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
