"""What a patch keeps from one call to the next, in every form that was thought of; and ordinary code that does not."""

import pytest

from app.verify.sources.suspicious_code import added_state

KEEPING = [
    pytest.param("python", "CALLS = []\n\ndef f(x):\n    CALLS.append(1)\n    return len(CALLS)\n", id="python calls"),
    pytest.param("python", "N = 0\n\ndef f(x):\n    global N\n    N += 1\n", id="python global"),
    pytest.param("python", "def f(x, seen=[]):\n    seen.append(x)\n", id="python default"),
    pytest.param("python", "def f(x):\n    f.n = getattr(f, 'n', 0) + 1\n", id="python fattr"),
    pytest.param("python", "class A:\n    n = 0\n    def f(self):\n        A.n += 1\n", id="python cls"),
    pytest.param("python", "class A:\n    n = 0\n    def f(self):\n        type(self).n += 1\n", id="python type"),
    pytest.param("python", "class A:\n    n = 0\n    def f(self):\n        self.__class__.n += 1\n", id="python cls2"),
    pytest.param("python", "class A:\n    n = []\n    def f(self):\n        self.n.append(1)\n", id="python clist"),
    pytest.param(
        "python", "import itertools\nN = itertools.count()\n\ndef f(x):\n    return next(N)\n", id="python count"
    ),
    pytest.param(
        "python",
        "import itertools\nstep = itertools.count().__next__\n\ndef f(x):\n    return step()\n",
        id="python count2",
    ),
    pytest.param(
        "python",
        "def make():\n    n = 0\n    def f(x):\n        nonlocal n\n        n += 1\n    return f\n\nf = make()\n",
        id="python closure",
    ),
    pytest.param(
        "python",
        "def make():\n    n = [0]\n    def f(x):\n        n[0] += 1\n    return f\n\nf = make()\n",
        id="python closure2",
    ),
    pytest.param(
        "python",
        "STATE = {'n': 0}\n\ndef bump(s):\n    s['n'] += 1\n\ndef f(x):\n    bump(STATE)\n",
        id="python helper",
    ),
    pytest.param("python", "STATE = {'n': 0}\n\ndef f(x):\n    s = STATE\n    s['n'] += 1\n", id="python alias"),
    pytest.param(
        "python",
        "class C:\n    n = 0\n    def hit(self):\n        self.n += 1\n\nC1 = C()\n\ndef f(x):\n    C1.hit()\n",
        id="python instance",
    ),
    pytest.param("python", "MEMORY = {}\n\ndef f(x):\n    return MEMORY.get(x)\n", id="python memory"),
    pytest.param("python", "import os\n\ndef f(x):\n    os.environ['N'] = '1'\n", id="python env"),
    pytest.param("python", "import sys\n\ndef f(x):\n    sys.n = 1\n", id="python sys"),
    pytest.param("python", "def f(x):\n    globals()['n'] = 1\n", id="python globals"),
    pytest.param(
        "python",
        "from functools import cache\n@cache\ndef box():\n    return []\n\ndef f(x):\n    box().append(1)\n",
        id="python box",
    ),
    pytest.param("python", "G = (n for n in range(50))\n\ndef f(x):\n    return next(G, None)\n", id="python gen"),
    pytest.param("python", "def f(x):\n    setattr(f, 'n', 1)\n", id="python setattr"),
    pytest.param("python", "S = [0]\n\ndef f(x):\n    S[:] = [S[0] + 1]\n", id="python walrus"),
    pytest.param("python", "class S: n = 0\n\ndef f(x):\n    S.n += 1\n", id="python obj"),
    pytest.param("python", "def f(x):\n    f.__dict__['n'] = 1\n", id="python fdict"),
    pytest.param(
        "python", "IT = iter(range(50))\n\ndef f(x):\n    for each in IT:\n        return each\n", id="python itertools"
    ),
    pytest.param("python", "import json\n\ndef f(x):\n    vars(json)['n'] = 1\n", id="python vars"),
    pytest.param("python", "S = []\nf = lambda x: S.append(x) or len(S)\n", id="python lambda"),
    pytest.param("python", "def f(x, *, s={'n': 0}):\n    s['n'] += 1\n", id="python deflt2"),
    pytest.param("javascript", "let calls = 0;\nfunction f(x) {\n  calls++;\n  return x;\n}\n", id="javascript let"),
    pytest.param("javascript", "const calls = [];\nconst f = (x) => {\n  calls.push(1);\n};\n", id="javascript arr"),
    pytest.param("javascript", "function f(x) {\n  exports.n = (exports.n || 0) + 1;\n}\n", id="javascript exp"),
    pytest.param("javascript", "function f(x) {\n  f.n = (f.n || 0) + 1;\n}\n", id="javascript fn"),
    pytest.param(
        "javascript",
        "const f = (() => {\n  let n = 0;\n  return (x) => {\n    n += 1;\n  };\n})();\n",
        id="javascript iife",
    ),
    pytest.param("javascript", "class C {\n  static n = 0;\n  f() {\n    C.n++;\n  }\n}\n", id="javascript static"),
    pytest.param(
        "javascript",
        "const seen = new Map();\nmodule.exports.f = function (x) {\n  seen.set(x, 1);\n};\n",
        id="javascript map",
    ),
    pytest.param("javascript", "function f() { globalThis.n = 1; }\n", id="javascript global"),
    pytest.param(
        "javascript", "const it = [1,2][Symbol.iterator]();\nfunction f() { return it.next(); }\n", id="javascript gen"
    ),
    pytest.param("go", "package a\n\nvar calls int\n\nfunc F() {\n\tcalls++\n}\n", id="go var"),
    pytest.param(
        "go", "package a\n\nvar seen = map[string]int{}\n\nfunc F(k string) {\n\tseen[k] = 1\n}\n", id="go map"
    ),
    pytest.param(
        "rust",
        "static N: AtomicUsize = AtomicUsize::new(0);\n\nfn f() {\n    N.fetch_add(1, SeqCst);\n}\n",
        id="rust atomic",
    ),
    pytest.param("rust", "static mut N: usize = 0;\n\nfn f() {\n    unsafe { N += 1; }\n}\n", id="rust mut"),
]
ORDINARY = [
    pytest.param(
        "python",
        "def g():\n    return []\n\ndef f(x):\n    g().append(x)\n    return next(g(), None)\n",
        id="python result",
    ),
    pytest.param(
        "python",
        "def f(x):\n    found = []\n    found.append(1)\n    found[0] = 2\n    return found\n",
        id="python local",
    ),
    pytest.param(
        "python",
        "class A:\n    def __init__(self):\n        self.n = []\n\n    def f(self):\n        self.n.append(1)\n",
        id="python self",
    ),
    pytest.param(
        "python", "DOTS = '...'\nTABLE = {'a': 1}\n\ndef f(x):\n    return TABLE[x] + DOTS\n", id="python const"
    ),
    pytest.param(
        "python",
        "import re\nP = re.compile('x')\n\ndef f(x):\n    return P.sub('', x)\n",
        id="python log",
    ),
    pytest.param(
        "python",
        "def f(x):\n    n = 0\n    def g():\n        nonlocal n\n        n += 1\n    g()\n    return n\n",
        id="python nested",
    ),
    pytest.param("python", "def f(x):\n    x.append(1)\n    x['a'] = 2\n", id="python param"),
    pytest.param(
        "python", "import os\nfrom x import y\n\ndef f(x):\n    os.remove(x)\n    y.get(x)\n", id="python importcall"
    ),
    pytest.param("python", "items = [1]\n\ndef f(items):\n    items.append(1)\n", id="python shadow"),
    pytest.param("python", "def f(x, n=0, s=()):\n    n += 1\n    return n\n", id="python deflt"),
    pytest.param(
        "python", "TABLE = {'a': 1}\n\ndef f(x):\n    t = dict(TABLE)\n    t['b'] = 2\n    return t\n", id="python copy"
    ),
    pytest.param(
        "python",
        "TABLE = {'a': [1]}\n\ndef f(x):\n    t = sorted(TABLE)\n    t.append(2)\n    return t\n",
        id="python copy2",
    ),
    pytest.param(
        "python", "def g(): return []\n\ndef f(x):\n    t = g()\n    t.append(2)\n    return t\n", id="python callres"
    ),
    pytest.param(
        "javascript",
        "function f(items) {\n  let s = 0;\n  for (const x of items) { s += x; }\n  const o = {};\n  o[1] = 2;\n}\n",
        id="javascript local",
    ),
    pytest.param(
        "javascript",
        "class C {\n  constructor() { this.n = []; }\n  add(x) { this.n.push(x); this.m = 1; }\n}\n",
        id="javascript this",
    ),
    pytest.param(
        "javascript",
        "const { x } = require('./x');\nconst T = { a: 1 };\nconst f = (k) => T[k] + x(k);\n",
        id="javascript const",
    ),
    pytest.param(
        "javascript",
        "function f(items) {\n  let n = 0;\n  items.forEach((x) => { n += x; });\n  return n;\n}\n",
        id="javascript inner",
    ),
    pytest.param(
        "go", "package a\n\nfunc F() int {\n\tn := 0\n\tn++\n\tvar m int\n\tm = 2\n\treturn n + m\n}\n", id="go local"
    ),
    pytest.param("go", "package a\n\ntype T struct{ n int }\n\nfunc (t *T) F() {\n\tt.n++\n}\n", id="go rec"),
    pytest.param(
        "rust",
        "fn f() -> usize {\n    let mut n = 0;\n    n += 1;\n    let mut v = vec![];\n    v.push(1);\n    n\n}\n",
        id="rust local",
    ),
    pytest.param("rust", "impl T {\n    fn f(&mut self) {\n        self.n += 1;\n    }\n}\n", id="rust self"),
]


@pytest.mark.parametrize(("language", "text"), KEEPING)
def test_state_that_lasts_is_found(language: str, text: str) -> None:
    assert added_state(language, None, text.encode())
    assert added_state(language, text.encode(), text.encode() + b"\n") == []


@pytest.mark.parametrize(("language", "text"), ORDINARY)
def test_ordinary_code_keeps_nothing(language: str, text: str) -> None:
    assert added_state(language, None, text.encode()) == []


def test_the_line_and_the_name_are_shown() -> None:
    old = b"def f(x):\n    return x\n"
    new = b"CALLS = [0]\n\n\ndef f(x):\n    CALLS[0] += 1\n    return x\n"
    assert added_state("python", old, new) == [(5, "CALLS")]


def test_memory_that_the_base_already_keeps_may_change_its_form() -> None:
    old = b"SEEN = {}\n\n\ndef f(x):\n    SEEN[x] = 1\n"
    new = b"SEEN = {}\n\n\ndef f(x):\n    SEEN.setdefault(x, 1)\n    SEEN.pop(None, 0)\n"
    assert added_state("python", old, new) == []
