"""Replaces the test modules in a Rust source by those of another version."""

from tree_sitter import Node, Tree

from app.repo.grammars import with_tree


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
