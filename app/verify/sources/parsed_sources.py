"""Sources of every language with a grammar: compared without comments, reprinted, and made noisy."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from difflib import SequenceMatcher
from random import Random
from typing import NamedTuple

from tree_sitter import Node, Tree

from app.repo import grammars
from app.repo.grammars import with_tree

_MAX_PAIRS = 2_000_000
"""Equal lines on both sides; the matcher's time grows with them, and a file may repeat a single line."""


class Hunk(NamedTuple):
    """Lines [old_start, old_end) of the old version became lines [new_start, new_end) of the new one; from 0."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def hunks(old: bytes, new: bytes) -> list[Hunk]:
    """The differences in order. If they would take too long to find, one hunk covers them all."""
    before, after = old.split(b"\n"), new.split(b"\n")
    start = 0
    while start < min(len(before), len(after)) and before[start] == after[start]:
        start += 1
    tail = 0
    while tail < min(len(before), len(after)) - start and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    before, after = before[start : len(before) - tail], after[start : len(after) - tail]
    if not before and not after:
        return []
    left, right = Counter(before), Counter(after)
    if sum(count * right[line] for line, count in left.items()) > _MAX_PAIRS:
        return [Hunk(start, start + len(before), start, start + len(after))]
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [
        Hunk(start + old_start, start + old_end, start + new_start, start + new_end)
        for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes()
        if tag != "equal"
    ]


def added_rows(old: bytes, new: bytes) -> set[int]:
    """Rows of the new version, from 0, that were added or changed."""
    return {row for hunk in hunks(old, new) for row in range(hunk.new_start, hunk.new_end)}


MAX_BYTES = 4 << 20
SECONDS = 5.0

COMMENTS = frozenset({"comment", "line_comment", "block_comment", "html_comment"})
_CURLY = frozenset({"javascript", "typescript", "tsx", "go", "rust", "java"})
ECMASCRIPT = frozenset({"javascript", "typescript", "tsx"})

# Comments that a compiler, interpreter or bundler obeys. They are part of the program.
_OBEYED = {
    "go": re.compile(rb"//(?:go:(?:build|embed|linkname|generate|wasm|cgo)|export |line |\s*\+build )"),
    "ruby": re.compile(rb"#[\s*-]*(?:frozen_string_literal|warn_indent|shareable_constant_value|(?:en)?coding)\s*[:=]"),
    "python": re.compile(rb"#.*coding[:=]"),
    **dict.fromkeys(ECMASCRIPT, re.compile(rb"/[/*].*@jsx|/\*\s*(?:webpack|@vite|turbopack)|///\s*<reference")),
}
# Comments that only tools read. Dropping one changes no behaviour but can make a build or a check fail.
_TOOLS = re.compile(
    rb"@ts-|eslint|istanbul|[cv]8 ignore|__PURE__|sourceMappingURL|@flow|@license|@preserve|@(?:vitest|jest)-|prettier-"
    rb"|biome-|deno-lint|nolint|go:|rubocop|typed:|NOLINT|clang-format|SAFETY|pragma|noqa|type:"
)
# Their text counts as it is: white space inside is data, and apparent comments are not comments.
_VERBATIM = frozenset(
    {"string", "template_string", "regex", "string_literal", "raw_string_literal", "interpreted_string_literal"}
    | {"char_literal", "character_literal", "rune_literal", "heredoc_body", "subshell", "string_array", "symbol_array"}
    | {"delimited_symbol", "preproc_arg", "system_lib_string", "character", "uninterpreted"}
)
_BLOCKS = frozenset(
    {"program", "module", "source_file", "translation_unit", "statement_block", "block", "statement_list"}
    | {"declaration_list", "class_body", "interface_body", "enum_body", "constructor_body", "body_statement"}
    | {"compound_statement", "field_declaration_list", "switch_block", "then", "begin_block"}
)
_OPEN, _CLOSE = b"\0(", b"\0)"


def normal_form(language: str, content: bytes) -> list[bytes] | None:
    """The tokens and structure of a program without comments, layout, tests in the same file, and redundant marks.

    Equal forms mean equal programs. None if the file is too large or takes too long to parse.
    """
    return grammars.with_tree(
        language, content, lambda tree: _flatten(language, content, tree), max_bytes=MAX_BYTES, seconds=SECONDS
    )


def _flatten(language: str, content: bytes, tree: Tree) -> list[bytes]:
    found: list[bytes] = []
    waiting: list[Node | bytes | int] = [tree.root_node]
    while waiting:
        item = waiting.pop()
        if isinstance(item, bytes):
            found.append(item)
        elif isinstance(item, int):  # the end of the node that was opened there
            if len(found) - 1 == item:
                found.pop()
            else:
                found.append(_CLOSE)
        elif not item.child_count or item.type in _VERBATIM or item.type == "jsx_text":
            if text := _token(language, item, content[item.start_byte : item.end_byte]):
                found.append(text)
        else:
            if item.is_named and not _redundant_parentheses(language, item, content):
                waiting.append(len(found))
                found.append(_OPEN + item.type.encode())
            waiting += reversed(list(_parts(language, item, content)))
    return found


def _token(language: str, node: Node, text: bytes) -> bytes:
    if node.type == "jsx_text":
        lines = text.split(b"\n")
        last = len(lines) - 1
        kept = [(line.lstrip() if row else line) for row, line in enumerate(lines)]
        kept = [(line.rstrip() if row < last else line) for row, line in enumerate(kept)]
        return b" ".join(line for line in kept if line)
    if node.type == "string" and language in ECMASCRIPT and text[:1] == b"'" and not set(b'"\\') & set(text):
        return b'"' + text[1:-1] + b'"'
    return text if node.type in _VERBATIM and node.type != "preproc_arg" else text.strip()


def _parts(language: str, node: Node, content: bytes) -> Iterator[Node | bytes]:
    """A node's children without what does not count, and the text between them that no child covers."""
    end = node.start_byte
    children = node.children
    skipped = _test_items(content, children) if language == "rust" else frozenset()
    unwrapped = _redundant_parentheses(language, node, content)
    for number, child in enumerate(children):
        if gap := content[end : child.start_byte].replace(b"\\\n", b"").strip():
            yield gap
        end = child.end_byte
        if number in skipped or _is_comment(language, child, content) or child.type == "line_continuation":
            continue
        if child.type == "empty_statement" and node.type.startswith("for"):
            yield b";"
        elif unwrapped and child.type in ("(", ")"):
            continue
        elif not (_needless(language, node, children, number) or _nothing(language, node, child)):
            yield child
    if gap := content[end : node.end_byte].strip():
        yield gap


def _is_comment(language: str, node: Node, content: bytes) -> bool:
    if node.type not in COMMENTS:
        return False
    obeyed = _OBEYED.get(language)
    return not (obeyed and obeyed.match(content[node.start_byte : node.end_byte]))


def _needless(language: str, parent: Node, children: Sequence[Node], number: int) -> bool:
    """A semicolon that only ends a statement, or a comma before a closing bracket."""
    child = children[number]
    if child.type == ";":
        return language in ECMASCRIPT | {"go"} and not parent.type.startswith("for")
    if child.type != "," or language not in _CURLY or parent.type == "token_tree":
        return False
    rest = [other for other in children[number + 1 :] if other.type not in COMMENTS]
    before = [other for other in children[:number] if other.type not in COMMENTS]
    return bool(rest and before and rest[0].type in (")", "]", "}", ">") and before[-1].is_named)


def _nothing(language: str, parent: Node, child: Node) -> bool:
    """A comment in braces between JSX, or a docstring of a Python version that this one cannot parse."""
    if child.type == "jsx_expression" and parent.type in ("jsx_element", "jsx_fragment"):
        return all(inner.type in COMMENTS for inner in child.named_children)
    if child.type == "expression_statement" and language == "python":
        return child.child_count == 1 and child.children[0].type == "string"
    return False


def _redundant_parentheses(language: str, node: Node, content: bytes) -> bool:
    if node.type != "parenthesized_expression" or language not in _CURLY:
        return False
    parent = node.parent
    called = parent is not None and ("call" in parent.type or parent.type == "new_expression")
    return not called and b"?." not in content[node.start_byte : node.end_byte]


def _test_items(content: bytes, children: Sequence[Node]) -> frozenset[int]:
    """The positions of Rust items that only exist in a build of tests, with their attributes."""
    found: set[int] = set()
    attributes: list[int] = []
    for number, child in enumerate(children):
        if child.type == "attribute_item":
            attributes.append(number)
        elif child.type not in COMMENTS:
            if any(_is_test_attribute(content, children[each]) for each in attributes):
                found.update((*attributes, number))
            attributes = []
    return frozenset(found)


def _is_test_attribute(content: bytes, node: Node) -> bool:
    text = b"".join(content[node.start_byte : node.end_byte].split())
    return text == b"#[cfg(test)]" or re.match(rb"#\[(?:\w+::)*test\b", text) is not None


class _Comment(NamedTuple):
    start: int
    end: int
    row: int
    kept: bool


class _Layout(NamedTuple):
    """The lines of a file that may be changed."""

    comments: list[_Comment]
    fixed_rows: set[int]
    """Rows that start inside something whose text counts."""
    statements: list[tuple[int, bytes]]
    """(row, indentation) of each statement or declaration that starts its line."""
    doubtful: bool
    """The grammar misread more than single words, so an apparent comment may not be one."""


def _layout(language: str, content: bytes) -> _Layout | None:
    def examine(tree: Tree) -> _Layout:
        comments: list[_Comment] = []
        fixed_rows: set[int] = set()
        statements: list[tuple[int, bytes]] = []
        doubtful = False
        lines = content.split(b"\n")
        waiting = [(tree.root_node, "")]
        while waiting:
            node, parent = waiting.pop()
            first, last = node.start_point[0], node.end_point[0] - (node.end_point[1] == 0)
            if node.type in COMMENTS:
                kept = _kept(language, content[node.start_byte : node.end_byte])
                comments.append(_Comment(node.start_byte, node.end_byte, last, kept))
                fixed_rows.update(range(first + 1, last + 1))
                continue
            if node.type in _VERBATIM or node.type in ("jsx_text", "ERROR") or node.type.startswith("preproc_"):
                fixed_rows.update(range(first + 1, last + 1))
            if node.is_missing or node.type == "ERROR":
                doubtful = doubtful or _misread(content[node.start_byte : node.end_byte])
            before = lines[first][: node.start_point[1]]
            if node.is_named and parent in _BLOCKS and not before.strip():
                statements.append((first, before))
            waiting += [(child, node.type) for child in reversed(node.children)]
        return _Layout(comments, fixed_rows, statements, doubtful)

    return grammars.with_tree(language, content, examine, max_bytes=MAX_BYTES, seconds=SECONDS)


def _misread(text: bytes) -> bool:
    return not 0 < len(text) <= 80 or re.search(rb"[\"'`/#\n{}()\[\]]", text) is not None


def _kept(language: str, text: bytes) -> bool:
    """Comments that a reprint keeps: those that are obeyed, tools' own, and Rust's documentation, for its lints."""
    obeyed = _OBEYED.get(language)
    if (obeyed and obeyed.match(text)) or _TOOLS.search(text):
        return True
    return language == "rust" and text.startswith((b"///", b"//!", b"/**", b"/*!"))


def reprint(language: str, content: bytes, random: Random) -> bytes | None:
    """The same program without comments and with another layout; None if that is not certain."""
    before = normal_form(language, content)
    layout = _layout(language, content)
    if before is None or layout is None or layout.doubtful or _needs_its_comments(language, content):
        return None
    plain = _without_comments(content, layout)
    printed = plain if language == "python" else _laid_out(language, plain, random)
    return printed if printed is not None and normal_form(language, printed) == before else None


def _needs_its_comments(language: str, content: bytes) -> bool:
    return language == "go" and b'import "C"' in content


def _without_comments(content: bytes, layout: _Layout) -> bytes:
    parts: list[bytes] = []
    end = 0
    for comment in sorted(layout.comments):
        if comment.kept or comment.start < end:
            continue
        text = content[comment.start : comment.end]
        parts += (content[end : comment.start], b"\n" if b"\n" in text else b" " if text.startswith(b"/*") else b"")
        end = comment.end
    return b"".join((*parts, content[end:]))


def _laid_out(language: str, content: bytes, random: Random) -> bytes | None:
    """Deeper indentation, no empty lines except new ones before some statements."""
    layout = _layout(language, content)
    if layout is None or layout.doubtful:
        return None
    after_comment = {comment.row + 1 for comment in layout.comments}
    begins = {row for row, indentation in layout.statements if not indentation and random.random() < 0.5}
    lines = content.split(b"\n")
    printed: list[bytes] = []
    for row, line in enumerate(lines):
        kept_end = row + 1 in layout.fixed_rows
        if row in layout.fixed_rows:
            printed.append(line if kept_end else line.rstrip(b" \t"))
        elif not line.strip():
            printed += [line] if row in after_comment else []
        else:
            printed += [b""] if row in begins else []
            deeper = line[:1] + line if line[:1] in (b" ", b"\t") else line
            printed.append(deeper if kept_end else deeper.rstrip(b" \t"))
    return b"\n".join((*printed, b""))


def noisy(language: str, content: bytes, changed: bytes | None, random: Random) -> bytes | None:
    """The same program with more comments, among them the lines that a patch adds, in their places.

    A test that only reads the text finds what it looks for. None if nothing is certain.
    """
    layout = _layout(language, content)
    before = normal_form(language, content)
    if layout is None or before is None or _needs_its_comments(language, content):
        return None
    starts = {row: each for row, each in sorted(layout.statements) if row not in layout.fixed_rows}
    noted = random_comments(starts, content, changed, random)
    lines = content.split(b"\n")
    noise = b"\n".join(
        part
        for row, line in enumerate(lines)
        for part in (*(starts[row] + comment_line(language, text) for text in noted.get(row, ())), line)
    )
    return noise if noise != content and normal_form(language, noise) == before else None


def random_comments(
    starts: Collection[int], content: bytes, changed: bytes | None, random: Random
) -> dict[int, list[bytes]]:
    """Comments to insert before rows: meaningless words in places, and added lines in their own place."""
    if not starts:
        return {}
    rows = sorted(starts)
    chosen = {random.choice(rows), *(row for row in rows if random.random() < 0.1)}
    noted = {row: [f"note {random.getrandbits(32):08x}".encode()] for row in chosen}
    after = changed.split(b"\n") if changed is not None else []
    for hunk in hunks(content, changed) if changed is not None else ():
        added = [line.strip() for line in after[hunk.new_start : hunk.new_end] if line.strip()]
        earlier = [row for row in rows if row <= hunk.old_start][-1:]
        later = [row for row in rows if row > hunk.old_start][:1]
        for row in (*earlier, *later):
            noted.setdefault(row, []).extend(added)
    return noted


def comment_line(language: str, text: bytes) -> bytes:
    """One line that is only a comment."""
    printable = bytes(max(character, 0x20) for character in text)
    if language in ("python", "ruby"):
        return b"# " + printable
    return (
        b"/* " + printable.replace(b"*/", b"* /").replace(b"/*", b"/ *") + b" */"
        if language == "c"
        else b"// " + printable
    )


def code_only(language: str, content: bytes) -> bytes | None:
    """The same rows and columns with comments, docstrings, and Rust's tests in the same file as spaces."""

    def blank(tree: Tree) -> bytes:
        made = bytearray(content)
        waiting = [tree.root_node]
        while waiting:
            node = waiting.pop()
            children = node.children
            skipped = _test_items(content, children) if language == "rust" else frozenset()
            for number, child in enumerate(children):
                if child.type in COMMENTS or number in skipped or _nothing(language, node, child):
                    text = content[child.start_byte : child.end_byte]
                    made[child.start_byte : child.end_byte] = re.sub(rb"[^\n]", b" ", text)
                else:
                    waiting.append(child)
        return bytes(made)

    return grammars.with_tree(language, content, blank, max_bytes=MAX_BYTES, seconds=SECONDS)


def walk_nodes(root: Node) -> Iterator[Node]:
    """The node and all named ones in it, in the order of the text."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(node.named_children)


def with_test_modules(old: bytes, new: bytes) -> bytes:
    """The new source with the old one's test modules."""
    before, after = _test_modules(old), _test_modules(new)
    for name, (start, end) in sorted(after.items(), key=lambda item: -item[1][0]):
        if name in before:
            first, last = before[name]
            new = new[:start] + old[first:last] + new[end:]
    gone = [old[start:end] for name, (start, end) in before.items() if name not in after]
    return b"\n\n".join([new, *gone]) + (b"\n" if gone else b"")


def _test_modules(content: bytes) -> dict[str, tuple[int, int]]:
    def find(tree: Tree) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        attributes: list[Node] = []
        for node in tree.root_node.named_children:
            if node.type == "attribute_item":
                attributes.append(node)
                continue
            attribute_text = b"".join(content[one.start_byte : one.end_byte] for one in attributes)
            name = node.child_by_field_name("name")
            if node.type == "mod_item" and name is not None and b"cfg(test)" in attribute_text.replace(b" ", b""):
                inline = node.child_by_field_name("body") is not None
                if inline:
                    start = attributes[0].start_byte
                    found[content[name.start_byte : name.end_byte].decode("utf-8", "replace")] = (start, node.end_byte)
            attributes = []
        return found

    return with_tree("rust", content, find) or {}
