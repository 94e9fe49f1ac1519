"""Whether files parse, and what they define."""

import pytest

from app.repo.syntax import SyntaxProblem, first_error, language_of, symbols

SOUND = {
    "a.py": b"async def f(a, /, *, b): return [x async for x in a]\n",
    "a.js": b"export const f = (a) => <B c={a}/>;\n",
    "a.ts": b"export abstract class B<T> { abstract z(): void }\n",
    "a.tsx": b"export default function D(p: P) { return <A {...p}/> }\n",
    "a.go": b"package a\nfunc F[T any](a T) {}\n",
    "a.rs": b"impl<T> S<T> { pub fn new(a: T) -> Self { S{a} } }\n",
    "a.java": b"record R(int a) { R { if (a < 0) throw new E(); } }\n",
    "a.rb": b"class A < B\n  def m(a, b = 1) = a\nend\n",
    "a.c": b"int f(int a) { return a; }\n",
    "a.cpp": b"template<class T> T f(T a) { return a; }\n",
    "a.json": b'\xef\xbb\xbf{"a": [1, 2]}',
    "a.toml": b"[a]\nb = 1\n",
    "a.yml": b"a: &x 1\nb: *x\nc: !Ref q\n",
}
BROKEN = {
    "a.py": b"x = 1\ndef f(:\n  pass\n",
    "a.js": b"x = 1\nconst a = ;\n",
    "a.ts": b"let x = 1;\nlet a: = 1\n",
    "a.tsx": b"let x = 1;\nlet b = <A><B></A>\n",
    "a.go": b"package a\nfunc f( {\n",
    "a.rs": b"const X: i32 = 1;\nfn f( {}\n",
    "a.java": b"class A {\n  void m( { }\n}\n",
    "a.rb": b"x = 1\ndef f)\nend\n",
    "a.c": b"int x;\nint f( { return; }\n",
    "a.cpp": b"int x;\nclass A { void f( };\n",
    "a.json": b'{"a": 1,\n}',
    "a.toml": b"a = 1\nb = \n",
    "a.yml": b"a: 1\nb: c: d\n",
}


@pytest.mark.parametrize("path", SOUND)
def test_sound_files_have_no_error(path: str) -> None:
    assert first_error(path, SOUND[path]) is None


@pytest.mark.parametrize("path", BROKEN)
def test_broken_files_name_the_line(path: str) -> None:
    problem = first_error(path, BROKEN[path])
    assert problem is not None
    assert problem.line == 2
    assert problem.text


@pytest.mark.parametrize("path", ["a.txt", "Makefile", "a.php", "a"])
def test_unknown_languages_are_not_judged(path: str) -> None:
    assert first_error(path, b"{{{ (") is None
    assert symbols(path, b"{{{ (") == ()


@pytest.mark.parametrize(
    "content",
    [
        b"def f():\npass\n",
        b"def f(a=1, b): pass\n",
        b"  x = 1\ny = 2\n",
        b"x = 1\0\n",
        b"# coding: nope\n",
    ],
)
def test_python_errors_that_a_lenient_grammar_lets_pass(content: bytes) -> None:
    assert first_error("a.py", content) is not None


@pytest.mark.parametrize(
    "content",
    [
        b"print 'hello'\n",
        b"exec 'x'\n",
        b"x = 0777\n",
        b"type X = int\n",
        b"def f[T](x: T) -> T: return x\n",
        b"x = f'{a['b']}'\n",
        b"try:\n  pass\nexcept A, B:\n  pass\n",
    ],
)
def test_older_and_newer_python_is_not_an_error(content: bytes) -> None:
    assert first_error("a.py", content) is None


def test_an_invalid_escape_is_a_warning_not_an_error() -> None:
    assert first_error("a.py", b"x = '\\d'\n") is None


def test_sound_c_that_needs_the_preprocessor_is_let_through() -> None:
    assert first_error("a.c", b"FOO(x) { int a; }\nBAR\nint g(void) { return MACRO a; }\n") is None


def test_yaml_aliases_are_checked_per_document_and_never_expanded() -> None:
    bomb = b"a0: &a0 [x]\n" + b"".join(b"a%d: &a%d [%s]\n" % (i, i, b"*a%d," % (i - 1) * 9) for i in range(1, 40))
    assert first_error("a.yaml", bomb) is None
    assert first_error("a.yaml", b"a: &x 1\n---\nb: *x\n") == SyntaxProblem(3, "undefined alias `x`")


def test_a_megabyte_is_not_judged() -> None:
    assert first_error("a.py", b"(" * 1_000_001) is None
    assert symbols("a.py", b"def f(): pass\n" * 100_000) == ()


def outline(path: str, content: bytes) -> list[tuple[str, str, str]]:
    return [(symbol.parent, symbol.kind, symbol.name) for symbol in symbols(path, content)]


def test_python_symbols_carry_signature_and_place() -> None:
    source = b"LIMIT = 1\nclass A(Base):\n    def m(\n        self, a: int,\n    ) -> str:\n        return ''\n"
    limit, a, m = symbols("a.py", source)
    assert (limit.kind, a.kind, m.kind) == ("variable", "class", "method")
    assert (m.name, m.parent, m.line) == ("m", "A", 3)
    assert m.signature == "def m( self, a: int, ) -> str"
    assert a.signature == "class A(Base)"


@pytest.mark.parametrize(
    ("path", "source", "expected"),
    [
        ("a.js", b"const f = (a) => { return 1 };\n", [("", "function", "f")]),
        ("a.js", b"module.exports.h = function (x) {}\n", [("", "function", "h")]),
        ("a.ts", b"interface I { m(a: string): void }\n", [("", "interface", "I"), ("I", "method", "m")]),
        ("a.tsx", b"export const C: FC = () => { return <a/> }\n", [("", "function", "C")]),
        ("a.go", b"package a\nfunc (s *Server) Close() error { return nil }\n", [("Server", "method", "Close")]),
        ("a.rs", b"impl<T> S<T> { fn new() {} }\n", [("", "impl", "S"), ("S", "method", "new")]),
        ("a.java", b"class A { String m(int a) { return null; } }\n", [("", "class", "A"), ("A", "method", "m")]),
        ("a.rb", b"module M\n  def self.k; end\nend\n", [("", "module", "M"), ("M", "method", "k")]),
        ("a.c", b"static int *f(int a) { return 0; }\n", [("", "function", "f")]),
        ("a.h", b"int g(void);\n#define MAX 1\n", [("", "prototype", "g"), ("", "macro", "MAX")]),
        ("a.cpp", b"int n::A::m(int a) const { return 1; }\n", [("n::A", "function", "m")]),
    ],
)
def test_definitions_of_each_language(path: str, source: bytes, expected: list[tuple[str, str, str]]) -> None:
    assert outline(path, source) == expected


def test_signatures_are_cut() -> None:
    (symbol,) = symbols("a.py", b"def f(" + b"a, " * 200 + b"): pass\n")
    assert len(symbol.signature) == 160
    assert symbol.signature.endswith("…")


@pytest.mark.parametrize(
    ("path", "language"),
    [("x/a.PY", "python"), ("Gemfile", "ruby"), ("a.mts", "typescript"), ("a.h", "cpp"), ("a.md", None), ("py", None)],
)
def test_language_by_name(path: str, language: str | None) -> None:
    assert language_of(path) == language
