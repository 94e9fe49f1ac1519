"""Examples in Go, Rust and Java, which are compiled where they reach what the issue is about."""

import shutil

import pytest

from app.sandbox.bubblewrap.provider import BubblewrapProvider
from tests.support.examples import ExampleProject, example
from tests.support.sandbox_projects import WITH_GO

GO = {
    "go.mod": "module example.com/calc\n\ngo 1.21\n",
    "calc.go": 'package calc\n\nfunc Half(a int) string { return half(a) }\n\nfunc half(a int) string { return "1" }\n',
    "a/internal/deep/deep.go": 'package deep\n\nimport "example.com/calc"\n\nvar One = calc.Half(3)\n',
    "cmd/tool/main.go": 'package main\n\nimport "fmt"\n\nvar made = one()\n\nfunc one() string { return "1" }\n\n'
    'func main() { fmt.Println("the tool") }\n',
}
GO_FIX = {
    "calc.go": GO["calc.go"].replace('"1"', '"1.5"'),
    "cmd/tool/main.go": GO["cmd/tool/main.go"].replace('"1"', '"1.5"'),
}
GO_MAIN = 'package main\n\nimport (\n\t"fmt"\n\n\t"{package}"\n)\n\nfunc main() {{ fmt.Println({value}) }}\n'
GO_INSIDE = 'package {package}\n\nimport "fmt"\n\nfunc Example() {{ fmt.Println({value}) }}\n'


@pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed")
async def test_go_reaches_internal_packages_unexported_names_and_commands(provider: BubblewrapProvider) -> None:
    project = ExampleProject(provider, GO, setup=WITH_GO)
    shows = [
        example("go", GO_MAIN.format(package="example.com/calc", value="calc.Half(3)"), "1.5\n"),
        example("go", GO_MAIN.format(package="example.com/calc/a/internal/deep", value="deep.One"), "1.5\n"),
        example("go", GO_INSIDE.format(package="calc", value="half(3)"), "1.5\n"),
        example("go", GO_INSIDE.format(package="main // cmd/tool", value="made"), "1.5\n"),
    ]
    keeps = example("shell", "tool", "the tool\n")
    missing = example("go", GO_MAIN.format(package="example.com/calc", value="calc.Third(3)"))
    wrong = example("go", GO_MAIN.format(package="example.com/calc", value="calc.Half(3"))
    before, after = (
        await project.run(*shows, keeps, missing, wrong),
        await project.run(*shows, keeps, change=dict(GO_FIX)),
    )
    assert [[run.stdout for run in runs] for runs in before[:4]] == [["1\n"] * 2] * 4, before
    assert [[run.printed(shows[0]) for run in runs] for runs in after[:4]] == [[True] * 2] * 4, after
    assert all(run.printed(keeps) for run in (*before[4], *after[4])), before[4]
    assert all("undefined: calc.Third" in run.stderr and run.exit_code and not run.problem for run in before[5])
    assert all(run.problem.startswith("The program itself cannot be compiled: ") for run in before[6])


RUST = {
    "Cargo.toml": '[workspace]\nmembers = ["calc", "tool"]\nresolver = "2"\n',
    "calc/Cargo.toml": '[package]\nname = "calc-core"\nversion = "0.1.0"\nedition = "2021"\n[features]\nmore = []\n',
    "calc/build.rs": 'fn main() { println!("cargo:rustc-env=UNIT=m"); }\n',
    "calc/src/lib.rs": "pub fn half(a: u32) -> String { (a / 2).to_string() }\n"
    '#[cfg(feature = "more")]\npub const UNIT: &str = env!("UNIT");\n',
    "tool/Cargo.toml": '[package]\nname = "tool"\nversion = "0.1.0"\nedition = "2021"\n',
    "tool/src/main.rs": 'fn main() { println!("{:?}", std::env::args().skip(1).collect::<Vec<_>>()) }\n',
}
RUST_FIX = {"calc/src/lib.rs": RUST["calc/src/lib.rs"].replace("(a / 2)", "(f64::from(a) / 2.0)")}


@pytest.mark.skipif(shutil.which("cargo") is None, reason="Rust is not installed")
async def test_rust_examples_of_a_crate_and_the_built_binary(provider: BubblewrapProvider) -> None:
    project = ExampleProject(provider, RUST)
    program = '// features: more\nuse calc_core::{half, UNIT};\n\nfn main() { println!("{}{UNIT}", half(3)); }\n'
    shows = example("rust", program, "1.5m\n")
    keeps = example("shell", "tool --x 1", '["--x", "1"]\n')
    await project.story(shows, keeps, dict(RUST_FIX))
    missing = example("rust", 'fn main() { println!("{}", calc_core::third(3)); }\n')
    wrong = example("rust", 'fn main() { println!("{}", calc_core::half(3) }\n')
    starts = (
        'fn main() { print!("{:?}", std::process::Command::new("tool").arg("é").output().unwrap().stdout.len()); }\n'
    )
    ((one, _), (other, _), (started, _)) = await project.run(missing, wrong, example("rust", starts))
    assert "cannot find function `third`" in one.stderr
    assert one.exit_code
    assert not one.problem
    assert other.problem.startswith("The program itself cannot be compiled: ")
    assert started.stdout or started.stderr, started


JAVA = {
    "src/main/java/org/calc/Half.java": "package org.calc;\n\n"
    "final class Half {\n    static String of(int a) { return String.valueOf(a / 2); }\n}\n",
    "src/main/resources/unit": "m",
    "src/test/java/org/calc/HalfTest.java": "package org.calc;\n\nclass HalfTest extends junit.framework.TestCase {}\n",
}
JAVA_FIX = {"src/main/java/org/calc/Half.java": JAVA["src/main/java/org/calc/Half.java"].replace("a / 2", "a / 2.0")}
JAVA_PROGRAM = """
    package org.calc;

    import java.util.Scanner;

    class Shows {
        public static void main(String[] args) {
            String unit = new Scanner(Shows.class.getResourceAsStream("/unit")).next();
            System.out.println(Half.of(3) + unit + args.length);
        }
    }
"""


@pytest.mark.skipif(shutil.which("javac") is None, reason="Java is not installed")
async def test_java_reaches_package_private_names(provider: BubblewrapProvider) -> None:
    project = ExampleProject(provider, JAVA)
    shows = example("java", JAVA_PROGRAM, "1.5m0\n")
    keeps = example("java", JAVA_PROGRAM.replace("Half.of(3)", "2"), "2m0\n")
    await project.story(shows, keeps, dict(JAVA_FIX))
    found = await project.run(
        example("java", JAVA_PROGRAM.replace("Half.of(3)", "Half.third(3)")),
        example("java", JAVA_PROGRAM.replace("Half.of(3)", "Half.of(3")),
    )
    assert all("cannot find symbol" in run.stderr and not run.problem for run in found[0]), found[0]
    assert all("cannot be compiled" in run.problem for run in found[1]), found[1]
