"""Variants of base and head that show a lie."""

import ast
from typing import Any

import pytest

from app.repo.grammars import language_of
from app.verify.sources import parsed_sources
from tests.support.source_samples import FILES, PYTHON, analysis_of, contents


class TestNoise:
    @pytest.mark.parametrize("path", FILES)
    @pytest.mark.parametrize("seed", range(5))
    def test_the_program_stays_and_the_text_does_not(self, path: str, seed: int) -> None:
        old = FILES[path]
        new = old.replace("sum", "amount").replace("total +=", "total += 1 *")
        noisy = contents(analysis_of({path: old}, {path: new}).base_with_comments(seed))[path]
        assert noisy != old
        if path == "a.py":
            assert "_note_" in noisy
        else:
            language = language_of(path)
            assert language
            assert parsed_sources.normal_form(language, noisy.encode()) == parsed_sources.normal_form(
                language, old.encode()
            )

    def test_added_lines_become_comments(self) -> None:
        new = PYTHON.replace("total += price", "total += round(price, 2)")
        noisy = contents(analysis_of({"a.py": PYTHON}, {"a.py": new}).base_with_comments(1))["a.py"]
        before = noisy.index("# total += round(price, 2)")
        assert noisy.index("def total") < before < noisy.index("return total")

    def test_docstrings_constants_and_names_of_the_head_stand_there(self) -> None:
        new = PYTHON.replace("Add them up", "Round them").replace(
            "        return total", "        cents = round(total, 2)\n        return 'free' if total == 41.5 else cents"
        )
        noisy = contents(analysis_of({"a.py": PYTHON}, {"a.py": new}).base_with_comments(1))["a.py"]
        assert '"""Round them."""' in noisy
        scope: dict[str, Any] = {}
        exec(compile(noisy, "a.py", "exec"), scope)
        code = scope["Basket"].total.__code__
        assert {"free", 41.5, 2} <= set(code.co_consts)
        assert "cents" in code.co_varnames
        assert scope["Basket"]().total([1, 2]) == 3

    def test_documentation_is_as_on_the_head(self) -> None:
        base = {"a.py": PYTHON, "CHANGES.md": "Old.\n", "data.json": "1"}
        patch = {"a.py": PYTHON.replace("0", "1"), "CHANGES.md": "New.\n", "docs/b.rst": "New.\n", "data.json": "2"}
        noisy = contents(analysis_of(base, patch).base_with_comments(1))
        assert noisy.keys() == {"a.py", "CHANGES.md", "docs/b.rst"}
        assert noisy["CHANGES.md"] == "New.\n"

    def test_other_files_of_the_directory_change_too(self) -> None:
        base = {"p/a.py": PYTHON, "p/b.py": "x = 1\n", "p/test_b.py": "x = 1\n", "q/c.py": "x = 1\n"}
        assert contents(analysis_of(base, {"p/a.py": "x = 2\n"}).base_with_comments(1)).keys() == {
            "p/a.py",
            "p/b.py",
        }

    @pytest.mark.parametrize(
        ("path", "content", "expected"),
        [
            ("a/__init__.py", '__version__ = "1.2.3"\n', '"1.2.4"'),
            ("pyproject.toml", '[project]\nversion = "1.2"\n', '"1.3"'),
            ("package.json", '{\n  "version": "1.2.3-beta.1"\n}\n', '"1.2.4-beta.1"'),
            ("setup.py", "setup(version='0.9')\n", "'0.10'"),
        ],
    )
    def test_the_version_counts_up(self, path: str, content: str, expected: str) -> None:
        base = {path: content, "a/b.py": "x = 1\n"}
        assert expected in contents(analysis_of(base, {"a/b.py": "x = 2\n"}).base_with_comments(1))[path]

    def test_a_version_that_the_patch_sets_is_set(self) -> None:
        base = {"a/__init__.py": '__version__ = "1.2.3"\n'}
        patch = {"a/__init__.py": '__version__ = "2.0.0"\n'}
        assert '"2.0.0"' in contents(analysis_of(base, patch).base_with_comments(1))["a/__init__.py"]

    def test_new_files_alone_leave_nothing_to_vary(self) -> None:
        assert analysis_of({}, {"a.py": "x = 1\n"}).base_with_comments(1) is None

    def test_the_same_seed_makes_the_same_noise(self) -> None:
        base, patch = {"a.py": PYTHON}, {"a.py": PYTHON.replace("0", "1")}
        assert analysis_of(base, patch).base_with_comments(1) == analysis_of(base, patch).base_with_comments(1)
        assert analysis_of(base, patch).base_with_comments(1) != analysis_of(base, patch).base_with_comments(2)


class TestReprint:
    @pytest.mark.parametrize("path", FILES)
    def test_comments_and_layout_go_and_the_program_stays(self, path: str) -> None:
        new = FILES[path].replace(" 0", " 7", 1)
        printed = contents(analysis_of({path: FILES[path]}, {path: new}).reprint_head(1))[path]
        assert "start" not in printed
        assert printed != new
        language = language_of(path)
        assert language
        if path == "a.py":
            assert ast.dump(ast.parse(printed)) == ast.dump(ast.parse(new))
        else:
            assert parsed_sources.normal_form(language, printed.encode()) == parsed_sources.normal_form(
                language, new.encode()
            )

    @pytest.mark.parametrize(
        ("path", "kept"),
        [
            ("a.py", '"""Add them up."""'),
            ("a.js", "'use strict'"),
            ("a.js", "`sum ${sum}  // no comment`"),
            ("a.go", "//go:build linux\n\n"),
            ("a.rs", "/// Adds."),
            ("a.rb", "# frozen_string_literal: true"),
            ("a.rb", "\n      # no comment\n"),
        ],
    )
    def test_directives_and_data_are_kept(self, path: str, kept: str) -> None:
        assert kept in contents(analysis_of({}, {path: FILES[path]}).reprint_head(1))[path]

    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("a.py", "x = a[(*b, c)]\n"),
            ("a.py", "def f(:\n"),
            ("a.py", "print 'a'\n"),
            ("a.js", "const a = ;\nf(`\n"),
            ("a.go", 'package a\n\n// #include <a.h>\nimport "C"\n'),
            ("a.go", 'package a\n\nimport (\n\t// #include <a.h>\n\t"C"\n)\n'),
            ("a.txt", "x\n"),
        ],
    )
    def test_code_that_cannot_be_printed_exactly_is_left_alone(self, path: str, content: str) -> None:
        printed = analysis_of({}, {path: content}).reprint_head(1)
        assert printed is None or contents(printed)[path] == content

    def test_tests_and_deletions_stay_as_they_are(self) -> None:
        patch = {"a.py": "x = 1 # one\n", "b.py": None, "tests/test_a.py": "x = 1 # one\n"}
        printed = analysis_of({"b.py": "x"}, patch).reprint_head(1)
        assert printed is not None
        assert [change.content for change in printed.changes] == [b"x = 1\n", None, b"x = 1 # one\n"]
