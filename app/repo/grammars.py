"""Loads tree-sitter grammars, one language at a time, and lists what counts as a definition in each.

Not tree-sitter-language-pack: it downloads parsers at run time.
"""

import importlib
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import PurePosixPath
from time import thread_time
from typing import TypeVar

from tree_sitter import Language, Node, Parser, Query, QueryCursor, Tree

MAX_BYTES = 500_000
"""Larger files are data or generated."""

_PARSE_SECONDS = 1.0
"""Of processor time, so that a busy machine sees the same as an idle one."""

_CHUNK = 65_536

_MAX_DEPTH = 64
_MAX_ERRORS = 1_000
_MAX_CHILDREN = 20_000
"""Matching is quadratic in the children of one node, and only errors have that many of unlike kinds."""

_BY_SUFFIX = {
    "python": "py pyi pyw",
    "javascript": "js jsx mjs cjs",
    "typescript": "ts mts cts",
    "tsx": "tsx",
    "go": "go",
    "rust": "rs",
    "java": "java",
    "ruby": "rb rake gemspec ru",
    "c": "c",
    "cpp": "h cc cpp cxx c++ hh hpp hxx h++ inl ipp",
}
_LANGUAGES = {f".{suffix}": language for language, suffixes in _BY_SUFFIX.items() for suffix in suffixes.split()}
_BY_NAME = {"Rakefile": "ruby", "Gemfile": "ruby", "SConstruct": "python", "SConscript": "python"}

_ECMASCRIPT = """
(function_declaration name: (_) @name) @function
(generator_function_declaration name: (_) @name) @function
(class_declaration name: (_) @name) @class
(method_definition name: (_) @name) @method
(variable_declarator name: (identifier) @name value: [(arrow_function) (function_expression) (class)]) @function
(assignment_expression left: (member_expression property: (_) @name)
  right: [(arrow_function) (function_expression) (class)]) @function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @method
(program (lexical_declaration (variable_declarator name: (identifier) @name) @variable))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @variable)))
"""
_TYPED = """
(interface_declaration name: (_) @name) @interface
(type_alias_declaration name: (_) @name) @type
(enum_declaration name: (_) @name) @enum
(abstract_class_declaration name: (_) @name) @class
(internal_module name: (_) @name) @module
(function_signature name: (_) @name) @function
(method_signature name: (_) @name) @method
(abstract_method_signature name: (_) @name) @method
"""
_C = """
(function_definition declarator: (function_declarator declarator: (_) @name)) @function
(function_definition declarator: (_ (function_declarator declarator: (_) @name))) @function
(declaration declarator: (function_declarator declarator: (identifier) @name)) @prototype
(declaration declarator: (pointer_declarator (function_declarator declarator: (identifier) @name))) @prototype
(struct_specifier name: (_) @name body: (_)) @struct
(union_specifier name: (_) @name body: (_)) @union
(enum_specifier name: (_) @name body: (_)) @enum
(type_definition declarator: (type_identifier) @name) @type
(preproc_def name: (_) @name) @macro
(preproc_function_def name: (_) @name) @macro
"""
_DEFINITIONS = {
    "python": """
(class_definition name: (_) @name) @class
(function_definition name: (_) @name) @function
(module (expression_statement (assignment left: (identifier) @name)) @variable)
(type_alias_statement left: (type) @name) @type
""",
    "javascript": _ECMASCRIPT,
    "typescript": _ECMASCRIPT + _TYPED,
    "tsx": _ECMASCRIPT + _TYPED,
    "go": """
(function_declaration name: (_) @name) @function
(method_declaration name: (_) @name) @method
(type_spec name: (_) @name) @type
(type_alias name: (_) @name) @type
(method_elem name: (_) @name) @method
(const_spec name: (_) @name) @constant
(source_file (var_declaration (var_spec name: (_) @name) @variable))
""",
    "rust": """
(function_item name: (_) @name) @function
(function_signature_item name: (_) @name) @function
(struct_item name: (_) @name) @struct
(enum_item name: (_) @name) @enum
(union_item name: (_) @name) @union
(trait_item name: (_) @name) @trait
(impl_item type: (_) @name) @impl
(mod_item name: (_) @name) @module
(type_item name: (_) @name) @type
(const_item name: (_) @name) @constant
(static_item name: (_) @name) @constant
(macro_definition name: (_) @name) @macro
""",
    "java": """
(class_declaration name: (_) @name) @class
(interface_declaration name: (_) @name) @interface
(enum_declaration name: (_) @name) @enum
(record_declaration name: (_) @name) @class
(annotation_type_declaration name: (_) @name) @interface
(method_declaration name: (_) @name) @method
(constructor_declaration name: (_) @name) @method
(enum_constant name: (_) @name) @constant
""",
    "ruby": """
(class name: (_) @name) @class
(module name: (_) @name) @module
(method name: (_) @name) @method
(singleton_method name: (_) @name) @method
(assignment left: (constant) @name) @constant
""",
    "c": _C,
    "cpp": _C
    + """
(class_specifier name: (_) @name body: (_)) @class
(namespace_definition name: (_) @name) @module
(concept_definition name: (_) @name) @type
(alias_declaration name: (_) @name) @type
(field_declaration declarator: (function_declarator declarator: (_) @name)) @method
""",
}


@lru_cache(maxsize=100_000)
def language_of(path: str) -> str | None:
    """The language of a file, by its name; None if there is no grammar for it."""
    name = PurePosixPath(path)
    return _BY_NAME.get(name.name) or _LANGUAGES.get(name.suffix.lower())


T = TypeVar("T")


def with_tree(
    language: str,
    content: bytes,
    ask: Callable[[Tree], T],
    *,
    max_bytes: int = MAX_BYTES,
    seconds: float = _PARSE_SECONDS,
) -> T | None:
    """The result of `ask` for the parsed file; None if parsing takes too long or the file is too large."""
    if len(content) > max_bytes:
        return None
    end = thread_time() + seconds
    source = memoryview(content)
    try:
        tree = Parser(_grammar(language)).parse(
            lambda offset, _point: source[offset : offset + _CHUNK],
            progress_callback=lambda _offset, _failing: thread_time() > end,
        )
    except ValueError:  # tree-sitter's only sign of a cancelled parse
        return None
    return ask(tree)


def definitions(language: str, tree: Tree) -> list[tuple[str, Node, Node]]:
    """(kind, node, name node) of every definition."""
    cursor = _cursor(language, _DEFINITIONS[language])
    found = [] if _has_too_many_children(tree) else cursor.matches(tree.root_node)
    return [
        (kind, nodes[0], captures["name"][0])
        for _, captures in found
        for kind, nodes in captures.items()
        if kind != "name"
    ]


def captured_nodes(language: str, pattern: str, tree: Tree) -> list[Node]:
    """Every node that the query captures, under any name."""
    if _has_too_many_children(tree):
        return []
    found = _cursor(language, pattern).captures(tree.root_node)
    return [node for nodes in found.values() for node in nodes]


def _cursor(language: str, pattern: str) -> QueryCursor:
    cursor = QueryCursor(_query(language, pattern))
    cursor.set_max_start_depth(_MAX_DEPTH)
    return cursor


def _has_too_many_children(tree: Tree) -> bool:
    """True if an error spans too many tokens (a megabyte of brackets): matching would take minutes."""
    nodes = [tree.root_node]
    for _ in range(_MAX_ERRORS):
        if not nodes:
            break
        node = nodes.pop()
        if node.has_error:
            if node.child_count > _MAX_CHILDREN:
                return True
            nodes += (child for child in node.children if child.has_error)
    return False


@cache
def _query(language: str, pattern: str) -> Query:
    return Query(_grammar(language), pattern)


@cache
def _grammar(language: str) -> Language:
    package = "typescript" if language == "tsx" else language
    module = importlib.import_module(f"tree_sitter_{package}")
    pointer = getattr(module, f"language_{language}" if package == "typescript" else "language")
    return Language(pointer())
