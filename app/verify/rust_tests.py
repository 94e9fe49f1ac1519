"""The parts of a Rust source that only a build of tests has: which they are, and those of another version instead."""

import re
from bisect import bisect
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from pathlib import PurePosixPath
from typing import NamedTuple

from tree_sitter import Node

from app.repo import grammars


def text_of(content: bytes, node: Node) -> bytes:
    """The node itself does not have its text, because the parser read it in chunks."""
    return content[node.start_byte : node.end_byte]


COMMENTS = frozenset({"comment", "line_comment", "block_comment", "html_comment"})


_BODIES = frozenset({"source_file", "declaration_list", "block"})


def _test_items(content: bytes, body: Node, children: Iterable[Node], *, statements: bool = False) -> frozenset[int]:
    """The ids of Rust items, or also of statements, that only exist in a build of tests, and of their attributes.

    Anything else that only exists there (an arm of a `match`, an element of an array) is part of the program.
    """
    if body.type not in _BODIES:
        return frozenset()
    return frozenset(
        each.id
        for attributes, node in _with_attributes(children)
        if (statements or body.type != "block" or _is_item(node))
        and any(_for_tests(text_of(content, each)) for each in attributes)
        for each in (*attributes, node)
    )


def _is_item(node: Node) -> bool:
    return node.type.endswith("_item") or node.type in ("use_declaration", "macro_definition")


def _with_attributes(nodes: Iterable[Node]) -> Iterator[tuple[list[Node], Node]]:
    """The nodes of a Rust source but comments, each behind its attributes."""
    attributes: list[Node] = []
    for node in nodes:
        if node.type == "attribute_item":
            attributes.append(node)
        elif node.type not in COMMENTS:
            yield attributes, node
            attributes = []


_FOR_TESTS = re.compile(
    rb"#\[(?:(?:(?:r#)?\w*::)*(?:r#)?test\b|cfg\((?:test\)|all\((?:(?:[^()]|\((?:[^()]|\([^()]*\))*\))*,)?test[,)]))"
)


def _for_tests(attribute: bytes) -> bool:
    text = b"".join(attribute.split())
    return text.endswith(b"]") and _FOR_TESTS.match(text) is not None


_MAX_DEPTH = 64
_Place = tuple[bytes, ...]
"""The names of the items around one, each behind its conditions (`#[cfg(…)]`), and its kind if it is no module."""
_ItemKey = tuple[_Place, str, bytes, int]
"""The place of an item, its kind and name, and which of several such it is."""
_Item = tuple[list[Node], Node]
"""An item's attributes, and the item."""
_NO_PLACE = b'\n\n#[cfg(test)]\nconst _: () = "the tests of the base have no place here";\n'
"""Does not compile in a build of tests, whatever else the crate defines."""


class _TestItems(NamedTuple):
    """The items of a Rust file that only a build of tests has, the others, and where more can be added to these."""

    items: dict[_ItemKey, _Item]
    others: dict[tuple[_Place, str, bytes], _Item]
    ends: dict[_Place, int]
    test_words: Counter[bytes]
    """How often each word that stands for a test (`test`, `rstest`, `mod tests`) is where it may define one: in macros,
    in their arguments (of those in a function's body only in attributes), and as what an attribute or a `use` names."""


def with_test_items(old: bytes, new: bytes) -> bytes:
    """The new Rust source with the old one's items that only a build of tests has, at any depth, and no others.

    What is removed from a function's body stays removed, and an item that every build has now is not added again. If a
    file cannot be parsed or has items that are nested too deeply, if what was around an item is gone, or if a macro or
    an attribute may define tests that the old source did not have, the result does not compile in a build of tests.
    """
    before, after = _items_of_tests(old), _items_of_tests(new)
    if before is None or after is None:
        return new + _NO_PLACE if b"test" in old + new else new
    promoted = {
        key: _span(other)
        for key, item in before.items.items()
        if key not in after.items and (other := after.others.get(key[:3]))
        if _for_all_builds(old, item) == _for_all_builds(new, other)
    }
    spans = sorted(promoted.values())
    ends = list(accumulate((end for _, end in spans), max))
    edits = [
        (start, end, _text(old, before.items[key]) if key in before.items else b"")
        for key, (start, end) in ((key, _span(item)) for key, item in after.items.items())
        if not (at := bisect(spans, (start, len(new)))) or ends[at - 1] <= start  # not inside of a promoted one
    ]
    missing = {key: item for key, item in before.items.items() if key not in after.items and key not in promoted}
    used = {
        (place, path)
        for (place, kind, _), (attributes, node) in after.others.items()
        if kind == "use_declaration" and not _conditions(new, attributes)
        for path in _used(new, node)
    }
    gone: dict[int, list[bytes]] = {}
    more = after.test_words - before.test_words
    lost = any(word not in before.test_words or not word.startswith(b"#") for word in more)
    for key, item in missing.items():
        place = key[0]
        paths = _used(old, item[1]) if key[1] == "use_declaration" else []
        rest = [path for path in paths if (place, path) not in used]
        texts = [_text(old, item)] if rest == paths else [_text(old, item, path) for path in rest]
        if place in after.ends and texts:
            gone.setdefault(after.ends[place], []).extend(texts)
        lost = lost or (place in before.ends and place not in after.ends)
    edits += [(at, at, b"\n\n" + b"\n\n".join(texts) + b"\n") for at, texts in gone.items()]
    for start, end, text in sorted(edits, reverse=True):
        new = new[:start] + text + new[end:]
    return new + _NO_PLACE if lost else new


def _span(item: _Item) -> tuple[int, int]:
    attributes, node = item
    return (attributes[0] if attributes else node).start_byte, node.end_byte


def _text(content: bytes, item: _Item, path: bytes = b"") -> bytes:
    """The text of an item; of a `use` only for one path of it if that is given."""
    start, end = _span(item)
    argument = item[1].child_by_field_name("argument") if path else None
    return content[start:end] if argument is None else content[start : argument.start_byte] + path + b";"


_MAX_LONGER = 32
"""The paths of a `use` together are so many times longer than its text at most."""


def _used(content: bytes, use: Node) -> list[bytes]:
    """The paths that a `use` makes names of, with `as` and the name if it is another one; none if they are too long."""
    waiting = [(b"", use.child_by_field_name("argument"))]
    found, left = list[bytes](), _MAX_LONGER * (use.end_byte - use.start_byte)
    while waiting:
        path, node = waiting.pop()
        if node is None or node.type in COMMENTS:
            continue
        if node.type == "scoped_use_list":
            around = node.child_by_field_name("path")
            path += (text_of(content, around) if around is not None else b"") + b"::"
            waiting.append((path, node.child_by_field_name("list")))
        elif node.type == "use_list":
            waiting += [(path, each) for each in reversed(node.named_children)]
        else:
            path = b" ".join((path + text_of(content, node)).split())
            found.append(path.replace(b"::self as ", b" as ").removesuffix(b"::self"))
        left -= len(path)
        if left < 0:
            return []
    return found


def _for_all_builds(content: bytes, item: _Item) -> list[bytes]:
    """An item without its conditions for tests and its visibility."""
    attributes, node = item
    texts = [text_of(content, each) for each in attributes]
    parts = [each.start_byte for each in node.children if each.type != "visibility_modifier"]
    kept = [text for text in texts if not (text.startswith(b"#[cfg") and _for_tests(text))]
    return [*kept, content[min(parts, default=node.start_byte) : node.end_byte]]


_BODIES_OR_ATTRIBUTES = frozenset({"block", "attribute_item", "inner_attribute_item"})
"""What is in them defines no test: the compiler finds none in a function's body."""
_TEST_WORD = re.compile(rb"(?:^|_|#)(?:rs)?tests?(?:_|$)")


def _items_of_tests(content: bytes) -> _TestItems | None:
    """None if the file is too large, takes too long to parse, or has items that are nested too deeply."""
    root = grammars.with_tree("rust", content, lambda tree: tree.root_node)
    if root is None:
        return None
    found = _TestItems({}, {}, {}, Counter())
    counted: Counter[tuple[_Place, str, bytes]] = Counter()
    waiting: list[tuple[Node, _Place, bool]] = [(root, (), False)]
    while waiting:
        node, place, in_body = waiting.pop()
        if len(place) > _MAX_DEPTH:
            return None
        children = node.children
        place += _conditions(content, (each for each in children if each.type == "inner_attribute_item"))
        in_body = node.type in _BODIES_OR_ATTRIBUTES or (in_body and node.type != "macro_definition")
        if not (in_body and node.type in ("token_tree", "use_as_clause")):
            found.test_words.update(_words_of_tests(content, node))
        skipped, inner, previous = _test_items(content, node, children, statements=True), [], ""
        for attributes, child in _with_attributes(children):
            name = _name_of(content, child)
            key = (place, child.type, name)
            if child.id in skipped:
                found.items[(*key, counted[key])] = (attributes, child)
                counted[key] += 1
            elif child.child_count:
                found.others[key] = (attributes, child)
                kind = b"" if child.type == "mod_item" or not _is_item(child) else child.type.encode() + b" "
                around = (*place, *_conditions(content, attributes, kind + name))
                inner += [(each, place, in_body) for each in attributes]
                inner.append((child, around, in_body and previous != "#"))
            previous = child.type
        if node.type == "source_file":
            found.ends[place] = len(content)
        elif node.type == "declaration_list":
            found.ends[place] = children[-1].start_byte
        waiting += reversed(inner)
    return found


def _words_of_tests(content: bytes, node: Node) -> Iterator[bytes]:
    """The words that stand for a test and that macros get, an attribute names (behind `#`), or a `use` renames."""
    names: Sequence[Node | None] = []
    match node.type:
        case "token_tree":
            names = node.children
        case "attribute":
            names = node.named_children[:1]
        case "use_as_clause":
            names = [node.child_by_field_name("path")]
    for each in names:
        name = each and (each.child_by_field_name("name") or each)
        if name and name.type == "identifier" and _TEST_WORD.search(word := text_of(content, name)):
            yield b"#" + word if node.type == "attribute" else word


def _conditions(content: bytes, attributes: Iterable[Node], name: bytes = b"") -> _Place:
    """The name behind the attributes that are conditions; nothing if there is neither."""
    texts = [text_of(content, each) for each in attributes]
    text = b"".join([text for text in texts if b"cfg" in text] + [name])
    return (text,) if text else ()


def _name_of(content: bytes, node: Node) -> bytes:
    """The name of an item, for an `impl` its trait and type, and for a `use` what it imports."""
    if node.type == "use_declaration":
        named = [node.child_by_field_name("argument")]
    elif node.type.endswith("_item"):
        named = [node.child_by_field_name(field) for field in ("trait", "type", "name")]
    else:
        return b""
    return b" ".join(text_of(content, one) for one in named if one is not None)


_ROOTS = frozenset({"lib.rs", "main.rs", "mod.rs"})
_PATH = re.compile(rb'#\[path="([^"]+)"\]')


def files_of_tests(path: str, content: bytes) -> Iterator[str]:
    """The files that the Rust file at `path` may load, and loads only in a build of tests."""
    place = PurePosixPath(path)
    found = _items_of_tests(content)
    for (within, kind, name, _), item in found.items.items() if found else ():
        text = b"".join(_text(content, item).split())
        if kind != "mod_item" or not text.endswith(b";"):
            continue
        around = [part.rpartition(b"]")[2].decode("utf-8", "replace") for part in (*within, name)]
        if given := _PATH.search(text):
            yield str(place.parent / given[1].decode("utf-8", "replace"))
        parent = place.parent if place.name in _ROOTS else place.with_suffix("")
        yield f"{parent.joinpath(*around)}.rs"
        yield str(parent.joinpath(*around, "mod.rs"))
