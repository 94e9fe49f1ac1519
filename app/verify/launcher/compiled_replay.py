"""Makes plain programs of Go and Rust tests, which call what the tests call and have no test framework."""

import base64
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from random import Random

from app.verify.frameworks import GO_COMPILED
from app.verify.launcher.base import ReplayProgram, SupervisorStep
from app.verify.launcher.compiled_copies import rust_parts
from app.verify.launcher.copies import CopyNames

MAX_COMMAND = 90_000
SHARE = 0.4
"""Of the time that calls are repeated, in each of two processes: the first may leave something for the second."""
REPLAY_TIMEOUT = 300.0
MAX_ROUNDS = 20_000
_GO_TEST = r"(?m)^func {name}\(\w+ \*testing\.T\) \{{"
_GO_IMPORT = re.compile(r'(?m)^(?:import[ \t]+"testing"|[ \t]+"testing")[ \t]*$')
_GO_PACKAGE = re.compile(r"(?m)^package (\w+)\s*$")
_GO_ARGUMENT = re.compile(r"(?<=[(,])(?P<start>\s*)(?P<value>(?:\[\]|map\[\w+\])[\w*.]+\{[^{}()]*\})(?=\s*[,)])")
_RUST_TEST = re.compile(r"(?m)^#\[test\]\s+(?:pub )?fn (\w+)\(\) \{")
_RUST_NEEDS_MORE = re.compile(r"(?m)^#!\[|^\s*(?:pub )?mod \w+;|\bfn main\b|#\[(?:should_panic|ignore|cfg)")
_TEXT = re.compile(r'(?<=\w\()"[^"\\\n]+"(?=\))')
"""A text that is the only argument of a call."""
_NAME = "sed -n 's/^name *= *\"\\(.*\\)\"/\\1/p' Cargo.toml | head -n 1"

_GO_CALLS = """\
package PACKAGE

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"time"
)

type ZZT struct {
	text   string
	failed bool
}

type ZZEnd struct{}

type ZZKept struct {
	value  interface{}
	before string
}

var ZZGivenValues []ZZKept

var ZZOther bool

func ZZText(text string) string {
	if ZZOther {
		return "?"
	}
	return text
}

func ZZGiven[V any](value V) V {
	if reflect.ValueOf(value).Len() > 0 {
		ZZGivenValues = append(ZZGivenValues, ZZKept{value, fmt.Sprintf("%#v", value)})
	}
	return value
}

func (t *ZZT) Fail()   { t.failed = true }
func (t *ZZT) Helper() {}
func (t *ZZT) Error(given ...interface{}) {
	t.failed, t.text = true, fmt.Sprint(given...)
}
func (t *ZZT) Errorf(form string, given ...interface{}) {
	t.failed, t.text = true, fmt.Sprintf(form, given...)
}
func (t *ZZT) FailNow() {
	t.failed = true
	panic(ZZEnd{})
}
func (t *ZZT) Fatal(given ...interface{}) {
	t.Error(given...)
	t.FailNow()
}
func (t *ZZT) Fatalf(form string, given ...interface{}) {
	t.Errorf(form, given...)
	t.FailNow()
}
func (t *ZZT) Failed() bool                     { return t.failed }
func (t *ZZT) Log(...interface{})               {}
func (t *ZZT) Logf(string, ...interface{})      {}
func (t *ZZT) Run(_ string, part func(*ZZT)) bool {
	part(t)
	return !t.failed
}

func zzCall(test func(*ZZT)) (kind, text string) {
	t := &ZZT{}
	ZZGivenValues = nil
	defer func() {
		found := recover()
		if _, ended := found.(ZZEnd); found != nil && !ended {
			kind, text = "panic", fmt.Sprint(found)
		} else if t.failed {
			kind, text = "AssertionError", t.text
		}
	}()
	test(t)
	return
}

func zzSay(parts ...string) {
	line, _ := json.Marshal(parts)
	fmt.Printf("\\nTOKEN%s\\n", line)
}

func ZZReplay() {
	names := []string{NAMES}
	tests := []func(*ZZT){TESTS}
	before := runtime.NumGoroutine()
	failed := make([][2]string, len(tests))
	for at, test := range tests {
		kind, text := zzCall(test)
		zzSay("result", names[at], "plain", kind, text)
		changed := ""
		for _, one := range ZZGivenValues {
			if fmt.Sprintf("%#v", one.value) != one.before {
				changed = "changed"
			}
		}
		if ZZGivenValues != nil {
			zzSay("result", names[at], "arguments", changed, "an argument became another")
		}
	}
	end := time.Now().Add(SECONDS * time.Millisecond)
	for round := 0; round < ROUNDS && time.Now().Before(end); round++ {
		for at, test := range tests {
			if kind, text := zzCall(test); kind != "" && failed[at][0] == "" {
				failed[at] = [2]string{kind, text}
			}
		}
	}
	for at, name := range names {
		zzSay("result", name, "many", failed[at][0], failed[at][1])
	}
	ZZOther = true
	for at, test := range tests {
		kind, _ := zzCall(test)
		problem := map[bool]string{true: "panics"}[kind == "panic"]
		zzSay("result", names[at], "varied", problem, fmt.Sprintf(`{"a text of one character": %q}`, problem))
	}
	time.Sleep(50 * time.Millisecond)
	if runtime.NumGoroutine() > before {
		zzSay("result", names[0], "process", "changed", "[\\"goroutines\\"]")
	}
}
"""
_RUST_MAIN = """
static OTHER: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

fn other_text(text: &'static str) -> &'static str {
    if OTHER.load(std::sync::atomic::Ordering::SeqCst) {
        return "?";
    }
    text
}

fn is_unintended(test: fn()) -> bool {
    let Err(error) = std::panic::catch_unwind(test) else { return false };
    let text = error.downcast_ref::<&str>().copied().or(error.downcast_ref::<String>().map(|text| text.as_str()));
    !text.unwrap_or_default().starts_with("assertion")
}

fn main() {
    use std::panic::catch_unwind;
    std::panic::set_hook(Box::new(|_| {}));
    let tests: Vec<(&str, fn())> = vec![TESTS];
    let say = |name: &str, phase: &str, passes: bool| {
        let kind = if passes { "" } else { "AssertionError" };
        println!("\\nTOKEN[\\"result\\", \\"{name}\\", \\"{phase}\\", \\"{kind}\\", \\"it panics\\"]");
    };
    for (name, test) in &tests {
        say(name, "plain", catch_unwind(*test).is_ok());
    }
    let begin = std::time::Instant::now();
    let mut passes = vec![true; tests.len()];
    let mut rounds = 0;
    while rounds < ROUNDS && begin.elapsed().as_millis() < SECONDS {
        rounds += 1;
        for (at, (_, test)) in tests.iter().enumerate() {
            passes[at] = passes[at] && catch_unwind(*test).is_ok();
        }
    }
    for (at, (name, _)) in tests.iter().enumerate() {
        say(name, "many", passes[at]);
    }
    OTHER.store(true, std::sync::atomic::Ordering::SeqCst);
    for (name, test) in &tests {
        let problem = if is_unintended(*test) { "panics" } else { "" };
        let text = format!(r#"{{\\"a text of one character\\": \\"{problem}\\"}}"#);
        println!("\\n{}", format!(r#"TOKEN["result", "{name}", "varied", "{problem}", "{text}"]"#));
    }
    println!("\\nTOKEN[\\"end\\"]");
}
"""


def go_replay(
    ids: Sequence[str], contents: Mapping[str, bytes], directory: str, random: Random, seconds: float
) -> ReplayProgram | None:
    """A program beside the packages of those tests that stand in the packages themselves; None if there are none."""
    mark = f"Zz{CopyNames(random).fresh('')}"
    files, chosen, imports, calls = dict[str, str](), list[str](), list[str](), list[str]()
    paths: list[str] = []
    for number, package in enumerate(dict.fromkeys(name.partition("::")[0] for name in ids)):
        mine = [name for name in ids if name.startswith(f"{package}::") and "/" not in name.partition("::")[2]]
        by_path = _go_files(mine, contents)
        folders = {str(PurePosixPath(path).parent) for path in by_path}
        names = [name for found in by_path.values() for name in found]
        if not names or len(folders) != 1:
            continue
        folder, package_name = folders.pop(), ""
        for path in by_path:
            text = contents[path].decode("utf-8", "replace")
            package_name = (_GO_PACKAGE.search(text) or [""] * 2)[1]
            text = _GO_ARGUMENT.sub(rf"\g<start>{mark}Given(\g<value>)", _GO_IMPORT.sub("", text))
            text = _TEXT.sub(rf"{mark}Text(\g<0>)", text)
            files[f"{path.removesuffix('_test.go')}_{mark.lower()}.go"] = text.replace("*testing.T", f"*{mark}T")
        tests = ", ".join(name.partition("::")[2] for name in names)
        shown = ", ".join(map(json.dumps, names))
        replaced = {
            "PACKAGE": package_name,
            "NAMES": shown,
            "TESTS": tests,
            "TOKEN": mark,
            "ZZ": mark,
            "zz": mark.lower(),
        }
        replaced |= {"SECONDS": str(int(seconds * SHARE * 1000)), "ROUNDS": str(MAX_ROUNDS)}
        files[str(PurePosixPath(folder, f"{mark.lower()}.go"))] = _filled(_GO_CALLS, replaced)
        imports.append(f'p{number} "{package}"')
        calls.append(f"p{number}.{mark}Replay()")
        chosen += names
        paths += by_path
    if not chosen:
        return None
    end = f'fmt.Print("\\n{mark}[\\"end\\"]\\n")'
    listed = "\n\t".join(['"fmt"', *imports])
    main = f"package main\n\nimport (\n\t{listed}\n)\n\nfunc main() {{\n\t" + "\n\t".join([*calls, end]) + "\n}\n"
    files[str(PurePosixPath(directory, mark.lower(), "main.go"))] = main
    build = _or_without(f"go build -o {{place}}/{mark} ./{mark.lower()}", f"{mark}Text", files, directory)
    build = f"{GO_COMPILED}; {build} && {{ {{place}}/{mark} >/dev/null; exec {{place}}/{mark}; }}"
    return _program(files, directory, build, (chosen, paths), mark)


def rust_replay(
    ids: Sequence[str], contents: Mapping[str, bytes], directory: str, random: Random, seconds: float
) -> ReplayProgram | None:
    """An example of the crate, without assertions for debugging, of the tests in `tests/`; None if there are none."""
    mark = f"zz{CopyNames(random).fresh('')}"
    start = f"{directory}/" if directory else ""
    modules, calls, chosen, paths = list[str](), list[str](), list[str](), list[str]()
    for path in dict.fromkeys(rust_parts(name)[0] for name in ids):
        text = contents.get(f"{start}{path}", b"").decode("utf-8", "replace")
        found = set(_RUST_TEST.findall(text))
        mine = [name for name in ids if rust_parts(name)[0] == path and found.issuperset(rust_parts(name)[1])]
        if not mine or not path.startswith("tests/") or _RUST_NEEDS_MORE.search(text):
            continue
        module = f"m{len(modules)}"
        modules.append(
            f"mod {module} {{\n"
            + _TEXT.sub(r"crate::other_text(\g<0>)", _RUST_TEST.sub(r"pub fn \1() {", text))
            + "\n}\n"
        )
        calls += [f"({json.dumps(name)}, {module}::{rust_parts(name)[1][-1]} as fn())" for name in mine]
        chosen += mine
        paths.append(f"{start}{path}")
    if not chosen:
        return None
    replaced = {
        "TESTS": ", ".join(calls),
        "TOKEN": mark,
        "SECONDS": str(int(seconds * SHARE * 1000)),
        "ROUNDS": str(MAX_ROUNDS),
    }
    text = "#![allow(dead_code, unused_imports)]\n" + "".join(modules) + _filled(_RUST_MAIN, replaced)
    without = " ".join(
        f'--config profile.dev.package."$({_NAME})".{name}=false' for name in ("debug-assertions", "overflow-checks")
    )
    files = {str(PurePosixPath(directory, "examples", f"{mark}.rs")): text}
    build = _or_without(f"cargo build -q --offline --example {mark} {without}", "crate::other_text", files, directory)
    program = f'env -i PATH="$PATH" "${{CARGO_TARGET_DIR:-target}}/debug/examples/{mark}"'
    build += f" && {{ {program} >/dev/null; exec {program}; }}"
    return _program(files, directory, build, (chosen, paths), mark)


def _go_files(ids: Sequence[str], contents: Mapping[str, bytes]) -> dict[str, list[str]]:
    """The files in which these tests stand, each with its own, if they need nothing else of `testing`."""
    found: dict[str, list[str]] = {}
    for path, content in contents.items():
        text = content.decode("utf-8", "replace")
        package = _GO_PACKAGE.search(text)
        more = "testing." in text.replace("*testing.T", "")
        if not path.endswith("_test.go") or package is None or package[1].endswith(("_test", "main")) or more:
            continue
        mine = [name for name in ids if re.search(_GO_TEST.format(name=re.escape(name.partition("::")[2])), text)]
        if mine:
            found[path] = mine
    return found


def _or_without(build: str, function: str, files: Mapping[str, str], directory: str) -> str:
    """The build, once more without this function around texts if they are of another type."""
    paths = shlex.join(str(PurePosixPath(path).relative_to(directory or ".")) for path in files)
    return f'{{ {build} 2>/dev/null || {{ sed -i -E \'s/{function}\\(("[^"]*")\\)/\\1/g\' {paths}; {build}; }}; }}'


def _filled(text: str, replaced: Mapping[str, str]) -> str:
    return re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], text)


def _program(
    files: Mapping[str, str], directory: str, build: str, found: tuple[Sequence[str], Sequence[str]], token: str
) -> ReplayProgram | None:
    """`found` are the ids and the paths of their files."""
    lines = []
    for path, text in files.items():
        file = shlex.quote(str(PurePosixPath(path).relative_to(directory or ".")))
        lines.append(f"mkdir -p $(dirname {file}) && base64 -d <<<{base64.b64encode(text.encode()).decode()} >{file}")
    command = " && ".join([*lines, f"{{ {build}; }}"])
    if len(command) > MAX_COMMAND:
        return None
    step = SupervisorStep(argv=("bash", "-c", command), cwd=directory, timeout=REPLAY_TIMEOUT, keep=8 * 1024**2)
    return ReplayProgram(ids=tuple(found[0]), paths=tuple(found[1]), steps=(step,), token=token)
