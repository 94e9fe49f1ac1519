"""Whatever the sources are: a changed token is a change, noise and another layout are none, and nothing crashes."""

import re
import sysconfig
from pathlib import Path
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tree_sitter import Tree

from app.core.python_source import parse_python
from app.repo import grammars
from app.repo.grammars import language_of
from app.verify.sources import additions, literals, parsed_sources, python_sources, suspicious_code, text_variants
from app.verify.sources.new_conditions import changed_rows
from app.verify.sources.process import ChangedSource, find_unchanged
from tests.support.source_samples import FILES

STANDARD = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("[a-z]*.py"))


def tokens(path: str, content: bytes) -> list[tuple[int, int, str]]:
    """(start, end, type) of everything that is a name, a number or the inside of a string, comments left out."""

    def collect(tree: Tree) -> list[tuple[int, int, str]]:
        waiting, found = [tree.root_node], []
        while waiting:
            node = waiting.pop()
            if node.type in parsed_sources.COMMENTS or node.type == "mod_item":  # the tests of a Rust file
                continue
            if not node.child_count and content[node.start_byte : node.end_byte].strip():
                found.append((node.start_byte, node.end_byte, node.type))
            waiting += node.children
        return sorted(found)

    language = language_of(path)
    assert language
    return grammars.with_tree(language, content, collect) or []


def same(path: str, old: bytes, new: bytes) -> bool:
    language = language_of(path)
    assert language
    return find_unchanged([ChangedSource(path, language, old, new)]) == [path]


def docstrings(content: bytes) -> set[int]:
    """Offsets inside of docstrings, where any text may change."""
    return {offset for found in re.finditer(rb'"""[^"]*"""', content) for offset in range(*found.span())}


@given(st.sampled_from(sorted(FILES)), st.data())
def test_another_name_number_or_text_is_a_change(path: str, data: st.DataObject) -> None:
    content = FILES[path].encode()
    skipped = docstrings(content) if path == "a.py" else set()
    words = [each for each in tokens(path, content) if content[each[0] : each[1]].isalnum() and each[0] not in skipped]
    start, end, _ = data.draw(st.sampled_from(words))
    assert not same(path, content, content[:end] + b"x1" + content[end:])
    assert not same(path, content, content[:start] + b"x" + content[end:]) or content[start:end] == b"x"


@given(st.sampled_from(sorted(FILES)), st.data())
def test_a_token_that_is_gone_or_doubled_is_a_change(path: str, data: st.DataObject) -> None:
    content = FILES[path].encode()
    skipped = docstrings(content) if path == "a.py" else set()
    found = [
        each
        for each in tokens(path, content)
        if each[0] not in skipped and content[each[0] : each[1]] not in (b";", b",")
    ]
    start, end, _ = data.draw(st.sampled_from(found))
    assert not same(path, content, content[:start] + b" " + content[end:])


def test_an_attribute_of_rust_without_its_end_is_a_change() -> None:
    content = FILES["a.rs"].encode()
    assert not same("a.rs", content, content.replace(b"#[cfg(test)]", b"#[cfg(test) "))


@given(st.sampled_from(sorted(FILES)), st.integers(0, 2**32), st.sampled_from(sorted(FILES)))
def test_noise_and_another_layout_are_none(path: str, seed: int, other: str) -> None:
    content, language = FILES[path].encode(), language_of(path)
    assert language
    for made in (
        text_variants.noisy(language, content, FILES[other].encode(), Random(seed)),
        text_variants.reprint(language, content, Random(seed))
        if language != "python"
        else python_sources.reprint(content),
        text_variants.noisy_python(content, None, Random(seed)) if language == "python" else content,
    ):
        assert made is not None
        assert same(path, content, made)


@settings(max_examples=10)
@given(st.sampled_from(STANDARD), st.sampled_from(STANDARD), st.integers(0, 2**32))
def test_real_modules_keep_their_meaning(module: Path, other: Path, seed: int) -> None:
    content = module.read_bytes()
    assume(len(content) < 30_000)
    printed, noisy = python_sources.reprint(content), text_variants.noisy_python(content, None, Random(seed))
    assert printed is not None
    assert noisy is None or same("a.py", content, noisy)
    assert same("a.py", content, printed)
    made, _ = python_sources.with_additions("a.py", content, other.read_bytes(), ())
    assert made is None or parse_python(made) is not None


@given(st.sampled_from(sorted(FILES)), st.binary(max_size=200), st.integers(0, 2_000), st.integers(0, 200))
def test_any_bytes_are_answered(path: str, junk: bytes, at: int, cut: int) -> None:
    old, language = FILES[path].encode(), language_of(path)
    assert language
    new = old[:at] + junk + old[at + cut :]
    same(path, old, new)
    text_variants.reprint(language, new, Random(1))
    text_variants.noisy(language, new, old, Random(1))
    changed_rows(language, old, new)
    list(suspicious_code.watching_lines(language, path, old, new))
    literals.literal_conditions(language, old, new, ["1"])
    additions.with_additions(language, old, new, ())
    if language == "python":
        python_sources.reprint(new)
        text_variants.noisy_python(old, new, Random(1))
        python_sources.with_additions(path, old, new, ())
