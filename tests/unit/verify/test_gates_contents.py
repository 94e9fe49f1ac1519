"""Gates on changed lines: syntax, secrets, hidden characters, dependencies, weaker tests."""

import pytest

from app.core.verification import GateResult
from app.verify.gates import CandidatePatch, static_gates
from app.verify.gates.changes_of_tests import weaker_tests
from app.verify.gates.contents import conflicts, dependencies, hidden_characters, secrets, syntax
from app.verify.gates.programs import security_scan
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of


def candidate(changes: dict[str, str | bytes | None], base: dict[str, str] | None = None) -> CandidatePatch:
    tree = MemoryTree({path: content.encode() for path, content in (base or {}).items()})
    return CandidatePatch(tree, patch_of(changes))


class TestAddedLines:
    def test_lines_that_moved_are_not_added(self) -> None:
        (delta,) = candidate({"a": "3\n1\n2\nnew\n2\n"}, {"a": "1\n2\n3\n"}).deltas
        assert delta.added == ((4, "new"), (5, "2"))

    def test_every_line_of_a_new_file_is_changed(self) -> None:
        (delta,) = candidate({"a": "1\n2"}).deltas
        assert delta.added == ((1, "1"), (2, "2"))

    def test_lines_of_a_binary_file_are_unknown(self) -> None:
        (delta,) = candidate({"a": b"\xff\xfe1"}).deltas
        assert delta.text is None
        assert delta.added == ()


class TestSyntax:
    @pytest.mark.parametrize(
        ("path", "content"),
        [
            ("a.py", "def f(:\n"),
            ("a.js", "function ( {"),
            ("a.go", "package a\nfunc {"),
            ("a.json", "{"),
            ("a.toml", "a = ="),
            ("a.yml", "a: [1\n"),
            ("tests/test_a.py", "def f(:\n"),
            ("tests/conftest.py", "def f(:\n"),
        ],
    )
    def test_a_syntax_error_blocks_with_its_line(self, path: str, content: str) -> None:
        gate = syntax(candidate({path: content}))
        assert gate.outcome == "blocked"
        assert gate.details[0].startswith(f"{path}:")

    def test_an_old_syntax_error_only_warns(self) -> None:
        assert syntax(candidate({"a.py": "def g(:\n"}, {"a.py": "def f(:\n"})).outcome == "warned"

    def test_data_of_tests_may_be_broken_on_purpose(self) -> None:
        assert syntax(candidate({"tests/data/broken.json": "{"})).outcome == "warned"

    def test_valid_and_unknown_files_pass(self) -> None:
        assert syntax(candidate({"a.py": "a = 1\n", "b.txt": "def f(:", "c.py": None})).outcome == "passed"


TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL6oR3"


class TestSecrets:
    def test_a_token_in_an_added_line_blocks_and_is_not_repeated(self) -> None:
        gate = secrets(candidate({"a.py": f"x = 1\ntoken = '{TOKEN}'\n"}, {"a.py": "x = 1\n"}))
        assert gate.outcome == "blocked"
        assert gate.details[0].startswith("a.py:2: ")
        assert TOKEN[4:12] not in str(gate)

    def test_a_token_that_was_there_before_does_not(self) -> None:
        line = f"token = '{TOKEN}'\n"
        assert secrets(candidate({"a.py": line + "x = 1\n"}, {"a.py": line})).outcome == "passed"

    def test_a_private_key_blocks(self) -> None:
        key = "-----BEGIN RSA " + "PRIVATE KEY-----\n" + "MIIEpAIBAAKCAQEA" * 20 + "\n-----END RSA PRIVATE KEY-----\n"
        assert secrets(candidate({"docs/key.txt": key})).outcome == "blocked"

    def test_a_token_in_a_binary_or_a_link_blocks(self) -> None:
        assert secrets(candidate({"a.bin": b"\0\1" + TOKEN.encode() + b"\0"})).outcome == "blocked"

    @pytest.mark.parametrize("path", [".env", "deploy/.env.production", "id_rsa", ".netrc", "certs/a.p12"])
    def test_files_that_hold_secrets_by_their_name(self, path: str) -> None:
        assert secrets(candidate({path: "A=1\n"})).outcome == "blocked"

    @pytest.mark.parametrize("path", [".env.example", "env.py", "id_rsa.py", "environment.yml"])
    def test_files_that_only_sound_like_it(self, path: str) -> None:
        assert secrets(candidate({path: "A=1\n"})).outcome == "passed"


def hidden(line: str, path: str = "a.py") -> GateResult:
    return hidden_characters(candidate({path: f"x = 1\n{line}\n"}, {path: "x = 1\n"}))


class TestHiddenCharacters:
    @pytest.mark.parametrize(
        "character",
        list(
            "\u202e\u2066\u2069\u200b\u200d\u2060\ufeff\u00ad\ufe0f\ufe00"
            "\U000e0041\U000e0100\u3164\u115f\u180e\x1b\x01\u061c\ue000"
        ),
    )
    def test_an_invisible_character_blocks_with_its_place(self, character: str) -> None:
        gate = hidden(f"a = 'b{character}c'")
        assert gate.outcome == "blocked"
        assert gate.details[0].startswith(f"a.py:2:7: U+{ord(character):04X} ")
        assert character not in str(gate.details)

    def test_findings_already_on_the_base_do_not_block(self) -> None:
        line = "a = 'b\u200bc'\n"
        assert hidden_characters(candidate({"a.py": line + "x = 1\n"}, {"a.py": line})).outcome == "passed"

    @pytest.mark.parametrize(
        "line",
        [
            "# \u2764\ufe0f and \U0001f468\u200d\U0001f469\u200d\U0001f467 and 1\ufe0f\u20e3",
            "# \U0001f3f3\ufe0f\u200d\U0001f308",
            "# \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",  # Persian needs its joiner
            "# \u0915\u094d\u200d\u0937",  # and so does Devanagari
            "x = 'Gr\u00fc\u00dfe, \u4f60\u597d, \u0645\u0631\u062d\u0628\u0627'",
            "\tx = 1\r",
            "\x0c",
            "d\u0394x = 2.0 * \u03bb + \u03bc",
            "# \u0441 \u0430 \u043e",  # Russian prepositions in a comment
            "print('\u0441\u043e\u0440')",
        ],
    )
    def test_joiners_needed_by_scripts_pass(self, line: str) -> None:
        assert hidden(line).details == ()

    def test_a_mark_of_byte_order_at_the_start_of_a_file(self) -> None:
        assert hidden_characters(candidate({"a.py": "\ufeffx = 1\n"})).outcome == "passed"
        assert hidden("\ufeffx").outcome == "blocked"

    @pytest.mark.parametrize(
        "line",
        [
            "p\u0430ssword = 1",  # Cyrillic a
            "if us\u0435r.is_admin:",
            "\u0441\u043e\u0440 = 1",  # wholly Cyrillic, and looks like "cop"
            "\u039f = 1",
            "\uff45val(x)",  # compilers read this as eval
            "\U0001d41eval(x)",
        ],
    )
    def test_names_in_code_that_look_like_others_block(self, line: str) -> None:
        assert hidden(line).outcome == "blocked"

    @pytest.mark.timeout(20)
    @pytest.mark.parametrize("quote", "\"'`")
    def test_escaped_quotes_after_an_open_one_do_not_hold_up_the_gate(self, quote: str) -> None:
        assert hidden(f"\u00e9 = {quote}" + f"\\{quote}" * 200_000).outcome == "passed"

    @pytest.mark.parametrize("path", ["README.md", "locale/ru.txt"])
    def test_prose_is_not_code(self, path: str) -> None:
        assert hidden("\u0441\u043e\u0440 p\u0430", path).outcome == "passed"


@pytest.mark.parametrize(
    "path",
    [
        "pyproject.toml",
        "requirements-dev.txt",
        "sub/package.json",
        "package-lock.json",
        "go.sum",
        "Cargo.lock",
        "uv.lock",
    ],
)
def test_dependencies_are_never_changed_silently(path: str) -> None:
    gate = dependencies(candidate({path: "x"}))
    assert gate.outcome == "warned"
    assert gate.details == (f"{path}: needs review",)


def test_sources_are_not_dependencies() -> None:
    assert dependencies(candidate({"src/lock.py": "x", "requirements.md": "x"})).outcome == "passed"


TESTS = "import pytest\n\ndef test_a():\n    assert f(1) == 2\n    assert f(2) == 3\n\ndef test_b():\n    assert f(0)\n"


class TestWeakerTests:
    @pytest.mark.parametrize(
        ("now", "told"),
        [
            (None, "deleted, with 2 tests"),
            (TESTS.replace("def test_b", "def check_b"), "tests removed or renamed: test_b"),
            (TESTS.replace("def test_b", "@pytest.mark.skip\ndef test_b"), "1 more skipped or expected to fail"),
            (TESTS.replace("def test_b", "@pytest.mark.xfail\ndef test_b"), "1 more skipped or expected to fail"),
            (TESTS.replace("    assert f(2) == 3\n", ""), "1 assertion changed or removed"),
            (
                TESTS.replace("f(2) == 3", "True") + "    assert f(4)\n    assert f(5)\n",
                "1 assertion changed or removed",
            ),
        ],
    )
    def test_each_kind_of_weakened_test_warns(self, now: str | None, told: str) -> None:
        gate = weaker_tests(candidate({"tests/test_a.py": now}, {"tests/test_a.py": TESTS}))
        assert gate.outcome == "warned"
        assert any(told in detail for detail in gate.details)

    def test_in_javascript_too(self) -> None:
        before = "test('one', () => { expect(1).toBe(1) })\nit('two', () => {})\n"
        after = "test.skip('one', () => {})\n"
        gate = weaker_tests(candidate({"a.test.js": after}, {"a.test.js": before}))
        assert len(gate.details) == 3

    def test_more_tests_pass(self) -> None:
        more = TESTS + "\ndef test_c():\n    assert f(3)\n"
        assert weaker_tests(candidate({"tests/test_a.py": more}, {"tests/test_a.py": TESTS})).outcome == "passed"


class TestSecurityScan:
    async def test_a_new_finding_in_an_added_line_warns(self) -> None:
        base = {"a.py": "import subprocess\n"}
        changed = base["a.py"] + "def f(x):\n    subprocess.call(x, shell=True)  # nosec\n"
        gate = await security_scan(candidate({"a.py": changed}, base))
        assert gate.outcome == "warned"
        assert gate.details[0].startswith("a.py:3: ")
        assert "high severity" in gate.details[0]

    async def test_a_finding_that_was_there_before_does_not(self) -> None:
        base = {"a.py": "import subprocess\nsubprocess.call('x', shell=True)\n"}
        gate = await security_scan(
            candidate({"a.py": "import subprocess\n\n\nsubprocess.call('x', shell=True)\ny = 1\n"}, base)
        )
        assert gate.outcome == "passed"

    async def test_names_of_theirs_are_not_paths_here(self) -> None:
        gate = await security_scan(candidate({"../../-r evil\n.py": "eval(input())\n"}))
        assert gate.outcome == "warned"
        assert gate.details[0].startswith("../../-r evil\\n.py:1: ")

    async def test_tests_and_other_languages_are_not_scanned(self) -> None:
        gate = await security_scan(candidate({"tests/test_a.py": "eval(input())\n", "a.js": "eval(x)\n"}))
        assert gate.outcome == "passed"

    async def test_a_syntax_error_is_ignored_here(self) -> None:
        assert (await security_scan(candidate({"a.py": "def f(:\n"}))).outcome == "passed"


CONFLICT = "a = 0\n<<<<<<< agent-fix/issue-7\na = 1\n=======\na = 2\n>>>>>>> main\n"


class TestConflicts:
    def test_a_marker_that_is_left_blocks_with_its_line(self) -> None:
        left = candidate({"a.py": "a = 0\na = 1\n>>>>>>> main\n"}, {"a.py": CONFLICT})
        gate = conflicts(left, ["a.py"])
        assert (gate.outcome, gate.details) == ("blocked", ("a.py:3: contains a conflict marker",))

    def test_a_file_that_was_not_touched_blocks_too(self) -> None:
        untouched = candidate({"b.py": "b = 1\n"}, {"a.py": CONFLICT, "b.py": "b = 0\n"})
        assert conflicts(untouched, ["a.py", "b.py"]).details == ("a.py:2: contains a conflict marker",)

    @pytest.mark.parametrize("resolved", ["a = 1\n", None])
    def test_resolved_or_deleted_files_pass(self, resolved: str | None) -> None:
        assert conflicts(candidate({"a.py": resolved}, {"a.py": CONFLICT}), ["a.py", "gone.py"]).outcome == "passed"

    def test_other_files_may_be_about_markers(self) -> None:
        about = candidate({"docs.md": CONFLICT, "a.py": "a = 1\n"}, {"a.py": CONFLICT})
        assert conflicts(about, ["a.py"]).outcome == "passed"

    def test_the_conflicts_gate_runs_if_there_are_conflicts(self) -> None:
        subject = candidate({"a.py": "a = 1\n"}, {"a.py": CONFLICT})
        assert "conflicts" not in {gate.name for gate in static_gates(subject)}
        assert "conflicts" in {gate.name for gate in static_gates(subject, (), ["a.py"])}


class TestCodings:
    HIDDEN = "# coding: utf-7\nx = 1\n# It is one.+AAo-x = 2\n"

    @pytest.mark.parametrize("coding", ["utf-7", "unicode_escape", "latin-1", "cp1252", "unknown"])
    def test_a_source_that_newly_declares_another_coding_is_refused(self, coding: str) -> None:
        found = hidden_characters(candidate({"a.py": f"# coding: {coding}\nx = 1\n"}, {"a.py": "x = 1\n"}))
        assert (found.outcome, "declares the coding" in found.details[0]) == ("blocked", True)

    def test_and_one_that_always_did_if_its_bytes_mean_something_else(self) -> None:
        old = {"a.py": "# coding: utf-7\nx = 1\n"}
        assert hidden_characters(candidate({"a.py": self.HIDDEN}, old)).outcome == "blocked"
        assert hidden_characters(candidate({"a.py": "# coding: utf-7\nx = 3\n"}, old)).outcome == "passed"

    @pytest.mark.parametrize("first", ["# -*- coding: utf-8 -*-", "# vim: set fileencoding=ascii :", "import os"])
    def test_the_usual_ones_are_nothing_special(self, first: str) -> None:
        assert hidden_characters(candidate({"a.py": f"{first}\nx = 1\n"})).outcome == "passed"

    def test_an_old_source_keeps_its_coding(self) -> None:
        old = {"a.py": "# coding: latin-1\nx = 1\n"}
        content = "# coding: latin-1\nx = 'é'\n".encode("latin-1")
        assert hidden_characters(candidate({"a.py": content}, old)).outcome == "passed"


@pytest.mark.parametrize("character", ["\u200f", "\u00ad", "\f", "\r", "\u200b", "\ufeff", "\x1b"])
def test_a_hidden_character_that_was_there_is_not_new(character: str) -> None:
    base = {"a.py": f"x = 1\na = 'b{character}c' + old\n"}
    assert hidden_characters(candidate({"a.py": f"x = 1\na = 'b{character}c' + new\n"}, base)).outcome == "passed"
    for line in (f"a = 'b{character}c{character}' + new", f"a = 'bc' + o{character}ld"):
        assert hidden_characters(candidate({"a.py": f"x = 1\n{line}\n"}, base)).outcome == "blocked"
