"""The base with only what a patch adds."""

import pytest

from tests.support.source_samples import analysis_of, contents

ADDITIONS: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
    # path: base, head, what the variant has of the head, what it has not
    "a.py": (
        """import os
from typing import List


class Basket(HTMLParser):
    size = 1

    def total(self):
        return OLD


def slug(text):
    return OLD
""",
        """import os
import re
import sys
from typing import List, Optional
from html.parser import HTMLParser
LIMIT = 3
BROKEN = missing(3)


class Basket(HTMLParser):
    size = 1
    kept: Optional[int] = None

    def total(self, tax=LIMIT):
        return NEW

    def discount(self):
        return HELP

    def reset(self):
        return NEW

    def visit_Name(self):
        return NEW

    def used(self):
        return NEW

    def __eq__(self, other):
        return NEW


@route("/")
def slug(text: Optional[str], *, strict=False, **rest) -> str:
    return NEW


slug.marker = True
slug.other = NEW


@route("/fixed")
def fixed():
    return re.match(HELP)


register(fixed)
""",
        (
            "import re",
            "List",
            "Optional",
            "LIMIT = 3",
            "kept",
            "tax=LIMIT",
            "def discount",
            "HELP",
            "strict=False",
            "text: Optional[str]",
            "-> str",
            "slug.marker = True",
            "def fixed",
        ),
        ("NEW", "BROKEN", "reset", "visit_Name", "used", "__eq__", "route", "register", "sys"),
    ),
    "a.ts": (
        """import a, { b } from "x";
export class Basket extends Other {
  size = 1
  total(a: number): number { return OLD }
}
export function slug(text: string) { return OLD }
module.exports = { a, b };
""",
        """import a, { b, c, d } from "x";
export class Basket extends Other {
  size = 1
  kept = c;
  total(a: number): number { return NEW }
  // HELP
  discount() { return 1 }
  used() { return NEW }
  toString() { return NEW }
}
export const fixed = () => HELP;
export function slug(text: string, strict = false) { return NEW }
module.exports = { a, b, fixed };
register(fixed);
""",
        ("{ c }", "kept = c", "discount()", "// HELP", "fixed = () => HELP", "strict = false", "{ a, b,\nfixed }"),
        ("NEW", "used", "toString", "register", "{ d }"),
    ),
    "a.go": (
        """package a

import "fmt"

type Basket struct{}

func (b *Basket) Total() int { return OLD }
""",
        """package a

import (
	"fmt"
	"os"
	"strings"
)

const Limit = 3

type Basket struct{}

func (b *Basket) Total() int { return NEW }

// Slug is HELP.
func (b *Basket) Slug() string { return strings.ToLower("A") }

func (b *Basket) String() string { return NEW }

func (b *Basket) Used() string { return NEW }

func init() { NEW }
""",
        ("const Limit", 'import "strings"', "// Slug is HELP.", "Slug()"),
        ("NEW", "String()", "Used()", "init", '"os"'),
    ),
    "a.rs": (
        """//! Totals.
use a::{b, c};
pub struct Basket;
impl Basket {
    pub fn total(&self) -> i32 { OLD }
}
impl Iterator for Basket {
    fn next(&mut self) { OLD }
}
""",
        """//! Totals.
use a::{b, c, d::Word, e};
pub struct Basket;
impl Basket {
    pub fn total(&self) -> i32 { NEW }
    /// HELP
    #[inline]
    pub fn slug(&self) -> Word { 1 }
}
impl Iterator for Basket {
    fn next(&mut self) { NEW }
    fn size_hint(&self) { NEW }
}
#[cfg(test)]
mod tests { NEW }
""",
        ("use a::d::Word;", "/// HELP", "#[inline]", "fn slug"),
        ("NEW", "size_hint", "a::e", "tests"),
    ),
    "A.java": (
        """import b.C;
class A extends Q {
    int total(int a) { return OLD; }
}
""",
        """import b.C;
import b.D;
import b.E;
class A extends Q {
    int limit = 3;
    int total(int a) { return NEW; }
    int total(int a, D b) { return HELP; }
    @Override int slug() { return NEW; }
    int used() { return NEW; }
    public boolean equals(Object o) { return NEW; }
}
""",
        ("import b.D;", "limit = 3", "HELP"),
        ("NEW", "b.E", "slug", "used", "equals"),
    ),
    "a.rb": (
        """module M
  class A < B
    def total(a)
      OLD
    end
    private
    def h = 1
  end
end
""",
        """module M
  class A < B
    LIMIT = 3
    def total(a, tax = 1, strict: false)
      NEW
    end
    def slug(x)
      HELP
    end
    def to_s = NEW
    def used = NEW
    private
    def h = 1
  end
end
""",
        ("LIMIT = 3", "tax = 1, strict: false", "def slug", "HELP"),
        ("NEW", "to_s", "used"),
    ),
}


USING = {"a.py": "b.py", "a.ts": "b.ts", "a.go": "b.go", "a.rs": "b.rs", "A.java": "B.java", "a.rb": "b.rb"}


class TestAdditions:
    @pytest.mark.parametrize("path", ADDITIONS)
    def test_new_names_stand_beside_every_old_body(self, path: str) -> None:
        old, new, there, not_there = ADDITIONS[path]
        base = {path: old, USING[path]: "x.used(); y.Used()\n"}
        variant = contents(analysis_of(base, {path: new}).additions)[path]
        assert variant.count("OLD") == old.count("OLD")
        assert [part for part in there if part not in variant] == []
        assert [part for part in not_there if part in variant] == []

    def test_new_files_belong_to_it_and_tests_do_not(self) -> None:
        base = {"a.py": "def f():\n    return 1\n"}
        patch = {
            "a.py": "from b import g\n\ndef f():\n    return g()\n",
            "b.py": "def g(): ...\n",
            "tests/test_a.py": "x\n",
        }
        assert contents(analysis_of(base, patch).additions) == {"b.py": "def g(): ...\n"}

    @pytest.mark.parametrize(
        "changes",
        [
            {"a.py": "def f():\n    return 2\n"},
            {"tests/test_a.py": "x = 1\n"},
            {"changes/1.md": "Fixed.\n", "a.py": "def f():\n    return 2\n"},
            {"a.py": None},
            {"a.c": "int f() { return 2; }\nint g() { return 1; }\n"},
        ],
    )
    def test_a_patch_that_adds_nothing_has_no_additions(self, changes: dict[str, str | bytes | None]) -> None:
        base = {"a.py": "def f():\n    return 1\n", "a.c": "int f() { return 1; }\n"}
        assert analysis_of(base, changes).additions is None

    def test_a_package_exports_what_it_newly_has(self) -> None:
        base = {"p/__init__.py": "from .a import f\n\n__all__ = ['f']\n", "p/a.py": "def f():\n    return 1\n"}
        patch = {
            "p/__init__.py": "from .a import f, g\n\n__all__ = ['f', 'g']\n",
            "p/a.py": "def f():\n    return 2\n\n\ndef g():\n    return 1\n",
        }
        variant = contents(analysis_of(base, patch).additions)
        assert "from .a import g" in variant["p/__init__.py"]
        assert "'g'" in variant["p/__init__.py"]
        assert "return 2" not in variant["p/a.py"]

    def test_an_instance_gets_its_new_attributes(self) -> None:
        old = "class A:\n    def __init__(self, x):\n        self.x = x\n"
        new = old.replace("(self, x)", "(self, x, y=1)") + (
            "        self.x = x + 1\n        self.y = y\n        z = f(x)\n"
            "        self.z = z\n        self.fixed = True\n"
        )
        variant = contents(analysis_of({"a.py": old}, {"a.py": new}).additions)["a.py"]
        assert "self.y = y\n        self.fixed = True" in variant
        assert "x + 1" not in variant
        assert "self.z" not in variant

    def test_members_of_an_enumeration_can_be_reached_without_their_names(self) -> None:
        base = {"a.py": "class A(IntEnum):\n    B = 1\n"}
        assert analysis_of(base, {"a.py": "class A(IntEnum):\n    B = 1\n    C = 2\n"}).additions is None

    def test_added_functions_can_be_emptied(self) -> None:
        base = {"a.py": "LIMIT = 3\n\n\ndef f():\n    return LIMIT\n"}
        new = {
            "a.py": "LIMIT = 3\nMORE = 4\n\n\ndef f():\n    return MORE\n\n\n"
            "class A:\n    def g(self):\n        return 1\n",
            "b.py": "def h(x):\n    return x\n\n\n__all__ = ['h']\n",
        }
        variant = contents(analysis_of(base, new).stubbed_additions)
        assert "LIMIT = 3\nMORE = None\n" in variant["a.py"]
        assert "return LIMIT" in variant["a.py"]
        assert "def g(self):\n        pass" in variant["a.py"]
        assert variant["b.py"] == "def h(x):\n    pass\n__all__ = ['h']\n"

    def test_a_function_that_cannot_be_emptied_in_all_places_is_kept(self) -> None:
        base = {"a.py": "x = 1\n", "b.js": "let x = 1;\n"}
        patch = {"a.py": "x = 1\ny = 1\n", "b.js": "let x = 1;\nlet y = 1;\n"}
        assert analysis_of(base, patch).additions is not None
        assert analysis_of(base, patch).stubbed_additions is None
        assert analysis_of(base, {"a.py": "x = 2\n"}).stubbed_additions is None
