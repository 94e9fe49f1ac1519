"""The kind of a file without a grammar: code, documentation, or configuration and data."""

from pathlib import PurePosixPath


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_DOCUMENTATION = _words(".md .mdx .rst .txt .adoc .asciidoc .org .tex .1 .po .pot")
_HASH = _words(".sh .bash .zsh .fish .ps1 .pl .pm .r .jl .ex .exs .nim .tcl .cr .coffee .pyx .pxd .pxi .cmake")
_SLASHES = _words(".php .cs .fs .kt .kts .swift .scala .dart .proto .groovy .gradle .zig .scss .less .m .mm .d .sol .v")
_DASHES = _words(".sql .lua .hs .elm .ada .vhd")
_OTHER = _words("""
    .css .html .htm .vue .svelte .astro .xml .xsl .erl .hrl .clj .cljs .lisp .el .scm .rkt .ml .mli .f .f90 .s .asm .bat
    .cmd .jinja .jinja2 .j2 .erb .haml .slim .ejs .hbs .mustache .njk .twig .tmpl .gotmpl .tpl .pug .y .l .g4 .peg .lark
    .ipynb .graphql .gql .wgsl .glsl .hlsl .cu .awk .sed
""")
_COMMENT = ((_HASH, "#"), (_SLASHES, "//"), (_DASHES, "--"))


def kind_of(path: str) -> str:
    """`code`, `documentation`, or `configuration or data`."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix in _HASH | _SLASHES | _DASHES | _OTHER:
        return "code"
    return "documentation" if suffix in _DOCUMENTATION else "configuration or data"


def same_lines(path: str, old: bytes | None, new: bytes | None) -> bool:
    """True if only empty lines, comment lines and trailing space differ."""
    suffix = PurePosixPath(path).suffix.lower()
    mark = next((mark.encode() for suffixes, mark in _COMMENT if suffix in suffixes), b"\0")
    sides = [[line.rstrip() for line in (side or b"").split(b"\n")] for side in (old, new)]
    before, after = ([line for line in lines if line and not line.lstrip().startswith(mark)] for lines in sides)
    return before == after
