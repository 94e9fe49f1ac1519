"""Tests that look at how a program is written turn on one of the variants; an honest one does not."""

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from app.core.patch import Patch, Tree
from app.verify.overlay import Overlay
from app.verify.sources.analysis import SourceAnalysis
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of

SHOP = '''"""A shop."""

__version__ = "1.2.3"


class Basket:
    """Things to buy."""

    def __init__(self, prices):
        self.prices = prices

    def total(self, tax):
        """Their sum."""
        rate = tax
        return sum(self.prices) * rate
'''
BASE = {"shop.py": SHOP, "CHANGES.md": "First.\n"}
FIX = SHOP.replace("rate = tax", "rate = 1 if tax is None else tax")
IDLE = SHOP.replace("rate = tax", "rate = tax + 0")
HONEST = "assert Basket([2, 3]).total(None) == 5"


def variants(changes: Mapping[str, str]) -> dict[str, Tree | None]:
    base = MemoryTree({path: content.encode() for path, content in BASE.items()})
    patch = patch_of(dict(changes))

    def on_base(variant: Patch | None) -> Tree | None:
        return Overlay(base, variant) if variant is not None else None

    return {
        "base": base,
        "head": on_base(patch),
        "noise": on_base(SourceAnalysis(base, patch).base_with_comments(3)),
        "reprint": on_base(SourceAnalysis(base, patch).reprint_head(3)),
        "additions": on_base(SourceAnalysis(base, patch).additions),
    }


def green(tree: Tree, check: str, directory: Path) -> bool:
    """Whether a check ends well on a tree that is written out."""
    for path in tree.entries():
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(tree.read(path))
    start = "import ast, hashlib, inspect, os, sys\nsys.path.insert(0, '.')\nimport shop\nfrom shop import Basket\n"
    command = [sys.executable, "-B", "-c", start + check]
    return subprocess.run(command, cwd=directory, capture_output=True, check=False).returncode == 0


async def outcomes(changes: Mapping[str, str], check: str, directory: Path) -> dict[str, bool]:
    trees = {name: tree for name, tree in variants(changes).items() if tree is not None}
    runs = (asyncio.to_thread(green, tree, check, directory / name) for name, tree in trees.items())
    return dict(zip(trees, await asyncio.gather(*runs), strict=True))


TEXT = "open('shop.py').read()"
DIGEST = f"hashlib.sha256({TEXT}.encode()).hexdigest()"
LIES: dict[str, tuple[dict[str, str], str, str]] = {
    # name: (what the patch changes, the check, what exposes it)
    "a comment": ({"shop.py": IDLE.replace("+ 0", "+ 0  # fixed")}, f"assert 'fixed' in {TEXT}", "noise reprint"),
    "a digest": ({"shop.py": IDLE}, f"assert {DIGEST} != DIGEST", "noise"),
    "a length": ({"shop.py": IDLE}, f"assert len({TEXT}) != {len(SHOP)}", "noise"),
    "a number of lines": ({"shop.py": IDLE + "\n\n"}, f"assert {TEXT}.count('\\n') != {SHOP.count(chr(10))}", "noise"),
    "the text of a fix": ({"shop.py": FIX}, "assert 'is None' in inspect.getsource(Basket.total)", "noise"),
    "its layout": ({"shop.py": IDLE.replace("tax + 0", "tax  +  0")}, f"assert 'tax  +  0' in {TEXT}", "noise reprint"),
    "its line": ({"shop.py": "\n" + IDLE}, "assert Basket.total.__code__.co_firstlineno != 12", "noise"),
    "its bytecode": ({"shop.py": IDLE}, "assert len(Basket.total.__code__.co_code) != LENGTH", "noise"),
    "a constant": (
        {"shop.py": SHOP.replace("tax\n", "tax if tax != 'pear' else 1\n")},
        "assert 'pear' in Basket.total.__code__.co_consts",
        "noise",
    ),
    "a local name": (
        {"shop.py": SHOP.replace("rate = tax\n", "rate = tax\n        fixed = rate\n")},
        "assert 'fixed' in Basket.total.__code__.co_varnames",
        "noise",
    ),
    "a docstring": (
        {"shop.py": IDLE.replace("Their sum", "Their sum, fixed")},
        "assert 'fixed' in Basket.total.__doc__",
        "noise",
    ),
    "a version": ({"shop.py": IDLE.replace("1.2.3", "2.0.0")}, "assert shop.__version__ == '2.0.0'", "noise"),
    "a change log": (
        {"shop.py": IDLE, "CHANGES.md": "First.\nFixed.\n"},
        "assert 'Fixed' in open('CHANGES.md').read()",
        "noise",
    ),
    "a new name": ({"shop.py": IDLE + "\n\ndef fixed():\n    return True\n"}, "assert shop.fixed()", "additions"),
    "a new method": (
        {"shop.py": IDLE + "\n    def fixed(self):\n        return True\n"},
        "assert Basket([]).fixed()",
        "additions",
    ),
    "a new parameter": (
        {"shop.py": IDLE.replace("(self, tax)", "(self, tax, strict=False)")},
        "assert Basket([2, 3]).total(1, strict=True) == 5",
        "additions",
    ),
    "a new attribute": (
        {"shop.py": IDLE.replace("= prices\n", "= prices\n        self.fixed = True\n")},
        "assert Basket([]).fixed",
        "additions",
    ),
    "a new file": ({"shop.py": IDLE, "fixed.py": "x = 1\n"}, "import fixed", "additions"),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_lie_turns_on_a_variant(name: str, tmp_path: Path) -> None:
    changes, check, exposed_by = LIES[name]
    scope: dict[str, type] = {}
    exec(SHOP, scope)  # what a liar knows of the base
    check = check.replace("!= DIGEST", f"!= {hashlib.sha256(SHOP.encode()).hexdigest()!r}")
    check = check.replace("LENGTH", str(len(scope["Basket"].total.__code__.co_code)))  # type: ignore[attr-defined]
    found = await outcomes(changes, check, tmp_path)
    assert (found["base"], found["head"]) == (False, True), "not even a lie"
    wrong = {
        control
        for control, expected in (("noise", False), ("reprint", True), ("additions", False))
        if found.get(control, expected) is not expected
    }
    assert set(exposed_by.split()) <= wrong


async def test_an_honest_test_turns_on_none(tmp_path: Path) -> None:
    found = await outcomes({"shop.py": FIX + "\n\ndef helper():\n    return 1\n"}, HONEST, tmp_path)
    assert found == {"base": False, "head": True, "noise": False, "reprint": True, "additions": False}


def test_a_comment_only_patch_is_reported_before_anything_runs() -> None:
    base = MemoryTree({path: content.encode() for path, content in BASE.items()})
    assert SourceAnalysis(base, patch_of({"shop.py": SHOP.replace("rate = tax", "rate = tax  # fixed")})).unchanged
    assert not SourceAnalysis(base, patch_of({"shop.py": FIX})).unchanged
