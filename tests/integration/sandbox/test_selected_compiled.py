"""Chosen tests of Go and Rust projects, in a real sandbox: what honest code and liars get out of it."""

import shutil

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.sandbox_projects import WITH_GO
from tests.support.selecting import Project

needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="NOT TESTED: there is no go here")
needs_cargo = pytest.mark.skipif(shutil.which("cargo") is None, reason="NOT TESTED: there is no cargo here")

GO = {
    "go.mod": "module example.com/money\n\ngo 1.21\n",
    "money.go": """\
        package money

        import "errors"

        func Add(a, b int) int {
            return a - b
        }

        func Half(a int) (int, error) {
            if a%2 != 0 {
                return 0, errors.New("odd")
            }
            return a / 2, nil
        }
        """,
    "money_test.go": """\
        package money

        import "testing"

        func TestAdd(t *testing.T) {
            if got := Add(1, 2); got != 3 {
                t.Errorf("Add(1, 2) = %d", got)
            }
        }

        func TestHalf(t *testing.T) {
            for _, c := range []struct{ in, out int }{{4, 2}, {6, 3}} {
                t.Run("half", func(t *testing.T) {
                    if got, _ := Half(c.in); got != c.out {
                        t.Fatalf("got %d", got)
                    }
                })
            }
            if _, err := Half(3); err == nil {
                t.Error("no error")
            }
        }
        """,
}
GO_IDS = ("example.com/money::TestAdd", "example.com/money::TestHalf")


@needs_go
async def test_go_reports_each_id_on_base_and_head(provider: BubblewrapProvider) -> None:
    project = Project(provider, GO, setup=WITH_GO)
    base = await project.run(*GO_IDS)
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "passed"]), base
    assert "Add(1, 2) = -1" in dict(base.texts)[GO_IDS[0]]
    fixed = {"money.go": GO["money.go"].replace("a - b", "a + b")}
    head = await project.run(*GO_IDS, changes=fixed, watch={"money.go": {6}})
    assert (head.untrusted, {status for _, status in head.results}) == ("", {"passed"})
    assert head.measured
    assert {6, 11, 13} <= set(dict(head.executed)["money.go"])


@needs_go
async def test_go_tests_behind_a_crash_are_run_all_the_same(provider: BubblewrapProvider) -> None:
    crash = 'package money\n\nimport (\n\t"os"\n\t"testing"\n)\n\nfunc TestAbout(t *testing.T) {\n\tos.Exit(3)\n}\n'
    ids = ("example.com/money::TestAbout", *GO_IDS)
    base = await Project(provider, GO, setup=WITH_GO).run(*ids, tests={"about_test.go": crash})
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "failed", "passed"])
    assert "got" not in dict(base.texts)[ids[0]]
    assert "Add(1, 2) = -1" in dict(base.texts)[ids[1]]


GO_LIES = {
    "an early exit": "func init() { syscall.Exit(0) }\n",
    "forged lines": """\
        func init() {
            for _, word := range os.Args {
                if strings.HasPrefix(word, "-test.run=") {
                    names := strings.Trim(strings.TrimPrefix(word, "-test.run="), "^$()")
                    for _, name := range strings.Split(names, "|") {
                        fmt.Printf("\\x16=== RUN   %s\\n\\x16--- PASS: %s (0.00s)\\n", name, name)
                    }
                    fmt.Print("\\x16PASS\\n")
                    syscall.Exit(0)
                }
            }
        }
        """,
    "forged lines for known names": """\
        func init() {
            if strings.Contains(strings.Join(os.Args, " "), "TestAdd") {
                for _, name := range []string{"TestAdd", "TestHalf"} {
                    fmt.Printf("\\x16=== RUN   %s\\n\\x16--- PASS: %s (0.00s)\\n", name, name)
                }
                fmt.Print("\\x16PASS\\n")
                syscall.Exit(0)
            }
        }
        """,
    "lines beside the true ones": """\
        func init() { fmt.Print("\\x16=== RUN   TestAdd\\n\\x16--- PASS: TestAdd (0.00s)\\n") }
        """,
    "for a known caller": """\
        func init() {
            lie = func(a, b int) int {
                pcs := make([]uintptr, 10)
                frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
                for {
                    frame, more := frames.Next()
                    if strings.HasSuffix(frame.Function, "TestAdd") {
                        return a + b
                    }
                    if !more {
                        return a - b
                    }
                }
            }
        }
        """,
}
GO_IMPORTS = 'import (\n\t"errors"\n\t"fmt"\n\t"os"\n\t"runtime"\n\t"strings"\n\t"syscall"\n)\n'
GO_USED = """
var lie = func(a, b int) int { return a - b }
var _ = fmt.Sprint(os.Args, runtime.GOOS, strings.ToUpper("x"), syscall.Getpid())
"""


@needs_go
@pytest.mark.parametrize("lie", GO_LIES)
async def test_a_forged_go_result_is_seen(provider: BubblewrapProvider, lie: str) -> None:
    product = GO["money.go"].replace('import "errors"\n', GO_IMPORTS).replace("return a - b", "return lie(a, b)")
    head = await Project(provider, GO, setup=WITH_GO).run(
        *GO_IDS, changes={"money.go": product + GO_USED + GO_LIES[lie]}
    )
    assert head.untrusted or dict(head.results)[GO_IDS[0]] != "passed", (lie, head)


RUST = {
    "Cargo.toml": '[package]\nname = "money"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": """\
        pub mod halves;

        pub fn add(a: i32, b: i32) -> i32 {
            a - b
        }
        """,
    "src/halves.rs": """\
        pub fn half(a: i32) -> Option<i32> {
            if a % 2 == 0 { Some(a / 2) } else { None }
        }

        #[cfg(test)]
        mod tests {
            use super::*;

            #[test]
            fn of_even() {
                assert_eq!(half(4), Some(2));
            }

            #[test]
            #[should_panic(expected = "odd")]
            fn of_odd() {
                half(3).expect("odd");
            }
        }
        """,
    "tests/adding.rs": """\
        use money::add;

        #[test]
        fn adds() -> Result<(), String> {
            assert_eq!(add(1, 2), 3, "one and two");
            assert!(add(2, 2) != 5);
            Ok(())
        }
        """,
}
RUST_IDS = ("tests/adding.rs::adds", "src/lib.rs::halves::tests::of_even", "src/lib.rs::halves::tests::of_odd")


@needs_cargo
async def test_cargo_reports_each_id_on_base_and_head(provider: BubblewrapProvider) -> None:
    project = Project(provider, RUST)
    base = await project.run(*RUST_IDS)
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "passed", "passed"])
    assert "one and two" in dict(base.texts)[RUST_IDS[0]]
    fixed = {"src/lib.rs": RUST["src/lib.rs"].replace("a - b", "a + b")}
    head = await project.run(*RUST_IDS, changes=fixed, watch={"src/lib.rs": {4}})
    assert (head.untrusted, {status for _, status in head.results}) == ("", {"passed"})
    assert not head.measured


@needs_cargo
async def test_a_test_file_that_does_not_compile_leaves_the_others_their_results(provider: BubblewrapProvider) -> None:
    other = {"tests/taking.rs": "#[test]\nfn takes() {\n    assert_eq!(money::take(1, 2), -1);\n}\n"}
    base = await Project(provider, RUST).run(*RUST_IDS[:2], "tests/taking.rs::takes", tests=other)
    assert (base.untrusted, [status for _, status in base.results]) == ("", ["failed", "passed", "error"])
    assert "cannot find function `take`" in dict(base.texts)["tests/taking.rs::takes"]


@needs_cargo
async def test_rust_tests_beside_a_crash_are_run_all_the_same(provider: BubblewrapProvider) -> None:
    files = {
        **RUST,
        "tests/deep.rs": """\
            fn deep(n: u64) -> u64 { if n == u64::MAX { 0 } else { 1 + deep(n + 1) } }

            #[test]
            fn crashes() { assert_eq!(deep(std::hint::black_box(0)), 1); }

            #[test]
            fn adds() { std::thread::sleep(std::time::Duration::from_secs(5)); assert_eq!(1 + 1, 2); }
            """,
    }
    base = await Project(provider, files).run("tests/deep.rs::crashes", "tests/deep.rs::adds")
    assert base.untrusted == ""
    assert dict(base.results)["tests/deep.rs::adds"] == "passed"
    assert dict(base.results)["tests/deep.rs::crashes"] in ("failed", "error")
    assert "overflowed its stack" in dict(base.texts)["tests/deep.rs::crashes"]


@needs_cargo
async def test_copies_are_made_of_tests_in_a_member_of_a_workspace(provider: BubblewrapProvider) -> None:
    members = {f"crates/money/{path}": text for path, text in RUST.items()}
    lie = {"crates/money/src/lib.rs": RUST["src/lib.rs"].replace("    a - b", RUST_LIES["for a known thread"])}
    project = Project(provider, {**members, "Cargo.toml": '[workspace]\nmembers = ["crates/money"]\n'})
    head = await project.run(*RUST_IDS, changes=lie)
    assert "adds" in head.untrusted
    fixed = {"crates/money/src/lib.rs": RUST["src/lib.rs"].replace("a - b", "a + b")}
    head = await project.run(*RUST_IDS[:2], changes=fixed)
    assert (head.untrusted, head.unchecked, {status for _, status in head.results}) == ("", (), {"passed"})


RUST_LIES = {
    "an early exit": "    std::process::exit(0)",
    "forged lines": """\
            for word in std::env::args().skip(1).filter(|word| !word.starts_with('-')) {
                std::io::Write::write_all(&mut std::io::stdout(), format!("test {word} ... ok\\n").as_bytes()).unwrap();
            }
            std::process::exit(0)
        """,
    "for a known thread": """\
            if std::thread::current().name() == Some("adds") { a + b } else { a - b }
        """,
}


@needs_cargo
@pytest.mark.parametrize("lie", RUST_LIES)
async def test_a_forged_cargo_result_is_seen(provider: BubblewrapProvider, lie: str) -> None:
    product = RUST["src/lib.rs"].replace("    a - b", RUST_LIES[lie])
    head = await Project(provider, RUST).run(*RUST_IDS[:1], changes={"src/lib.rs": product})
    assert head.untrusted or dict(head.results)[RUST_IDS[0]] != "passed", (lie, head)
