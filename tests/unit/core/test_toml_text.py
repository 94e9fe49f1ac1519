"""TOML of strangers is read, or refused with a ValueError, and never with all memory."""

import tomllib
import tracemalloc

import pytest

from app.core.yaml_and_toml import toml_table

LONG_KEY = f"a{'.b' * 200_000} = 1\n"
HOSTILE = {
    "yarn.lock": '# yarn lockfile v1\n\n"left-pad@^1":\n  version "1.3.0"\n',
    "Gemfile.lock": "GEM\n  remote: https://rubygems.org/\n  specs:\n    rake (13.0)\n",
    "bytes": "\x00\x01\ufffd",
    "nested": f"a = {'[' * 100_000}",
    "a large number": f"a = {'1' * 5_000}",
    "a long key": LONG_KEY,
    "quoted parts": LONG_KEY.replace("b", '"="'),
    "line ends in quoted parts": LONG_KEY.replace("b", '"\u2028"'),
    "many keys in a deep table": f"[a{'.b' * 3_000}]\n" + "".join(f"k{number} = 1\n" for number in range(40_000)),
}


def test_usual_files_are_read() -> None:
    package = '[[package]]\nname = "p"\nversion = "1.2.0"\nurl = "https://a.b.c/d.e"\n'
    assert len(toml_table(package * 5_000)["package"]) == 5_000


@pytest.mark.parametrize("name", HOSTILE)
def test_others_are_refused(name: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as raised:
            toml_table(HOSTILE[name])
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 50_000_000
    assert isinstance(raised.value, tomllib.TOMLDecodeError) == (name in ("yarn.lock", "Gemfile.lock", "bytes"))
