"""A small project in each language: its suite is found and run by the language's own tools, and each test has a name.

The tools are those of this machine; a language without them is skipped by its name.
"""

import shutil
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from app.verify.verdict import compare
from tests.integration.sandbox.test_fixture_projects import Projects


class Story(NamedTuple):
    """A project: the programs and files of this machine that it needs, its command, and what its tests are called.

    Without the sum in `source`, the test `adds` fails and the others pass.
    """

    needs: tuple[str, ...]
    files: Mapping[str, str]
    command: str
    adds: str
    others: tuple[str, ...]
    source: str


def text(indented: str) -> str:
    return textwrap.dedent(indented).lstrip()


GEMS = "/usr/share/rubygems-integration/all/gems"
RAKEFILE = text("""
    require "rake/testtask"
    Rake::TestTask.new(:test) { |task| task.pattern = "test/*_test.rb" }
    """)
RUBY = {"lib/money.rb": "module Money\n  def self.add(a, b) = a + b\nend\n"}


def ruby_test(library: str, base: str) -> dict[str, str]:
    written = f"""
    require "{library}"
    require_relative "../lib/money"
    class MoneyTest < {base}
      def test_adds = assert_equal(3, Money.add(1, 2))
      def test_zero = assert_equal(0, Money.add(0, 0))
    end
    """
    return {**RUBY, "Rakefile": RAKEFILE, "test/money_test.rb": text(written)}


RSPEC = text("""
    require_relative "../lib/money"
    RSpec.describe Money do
      it("adds") { expect(Money.add(1, 2)).to eq 3 }
      it("zero") { expect(Money.add(0, 0)).to eq 0 }
    end
    """)
PHPUNIT_XML = text("""
    <phpunit>
      <testsuites><testsuite name="all"><directory>tests</directory></testsuite></testsuites>
    </phpunit>
    """)
PHPUNIT = text(r"""
    <?php
    require_once __DIR__ . '/../src/money.php';
    class MoneyTest extends PHPUnit\Framework\TestCase {
      function testAdds(): void { $this->assertSame(3, add(1, 2)); }
      function testZero(): void { $this->assertSame(0, add(0, 0)); }
    }
    """)
GOOGLETEST = text("""
    #include <gtest/gtest.h>
    #include "../src/money.h"
    TEST(Money, Adds) { EXPECT_EQ(3, add(1, 2)); }
    TEST(Money, Zero) { EXPECT_EQ(0, add(0, 0)); }
    """)
PROGRAM = text("""
    #include "../src/money.h"
    int main(int count, char **) { return count > 1 ? add(0, 0) : add(1, 2) != 3; }
    """)
LINKED = "find_package(GTest REQUIRED)\ntarget_link_libraries(money_test GTest::gtest_main)"


def cmake(lines: str, test: str) -> dict[str, str]:
    lists = text("""
    cmake_minimum_required(VERSION 3.13)
    project(money CXX)
    option(MONEY_BUILD_TESTS "tests" OFF)
    if(NOT MONEY_BUILD_TESTS)
      return()
    endif()
    enable_testing()
    add_executable(money_test test/money_test.cpp)
    add_test(NAME money COMMAND money_test)
    """)
    header = "inline int add(int a, int b) { return a + b; }\n"
    return {"CMakeLists.txt": f"{lists}{lines}\n", "src/money.h": header, "test/money_test.cpp": test}


CONFIGURED = "cmake -S . -B build -DMONEY_BUILD_TESTS=ON"
BUILT = f'{CONFIGURED} && cmake --build build --parallel "$(nproc)" && (cd build && ctest)'
MIX = text("""
    defmodule Money.MixProject do
      use Mix.Project
      def project, do: [app: :money, version: "0.1.0"]
    end
    """)
EXUNIT = text("""
    defmodule MoneyTest do
      use ExUnit.Case
      test "adds" do assert Money.add(1, 2) == 3 end
      test "zero" do assert Money.add(0, 0) == 0 end
    end
    """)
JUNIT = "/usr/share/java/junit4.jar"
GRADLE = text(f"""
    apply plugin: 'java'
    dependencies {{ testCompile files('{JUNIT}', '/usr/share/java/hamcrest-core.jar') }}
    """)
JAVA = "public class Money { public static int add(int a, int b) { return a + b; } }\n"
JAVA_TEST = text("""
    import org.junit.Assert;
    import org.junit.Test;
    public class MoneyTest {
      @Test public void adds() { Assert.assertEquals(3, Money.add(1, 2)); }
      @Test public void zero() { Assert.assertEquals(0, Money.add(0, 0)); }
    }
    """)
STORIES = {
    "minitest": Story(
        ("ruby", "rake", f"{GEMS}/minitest-*"),
        ruby_test("minitest/autorun", "Minitest::Test"),
        "rake test",
        "MoneyTest#test_adds",
        ("MoneyTest#test_zero",),
        "lib/money.rb",
    ),
    "test-unit": Story(
        ("ruby", "rake", f"{GEMS}/test-unit-*"),
        ruby_test("test/unit", "Test::Unit::TestCase"),
        "rake test",
        "MoneyTest::test_adds",
        ("MoneyTest::test_zero",),
        "lib/money.rb",
    ),
    "RSpec": Story(
        ("ruby", "rspec"),
        {**RUBY, ".rspec": "--format documentation\n", "spec/money_spec.rb": RSPEC},
        "rspec",
        "spec/money_spec.rb::Money adds",
        ("spec/money_spec.rb::Money zero",),
        "lib/money.rb",
    ),
    "PHPUnit": Story(
        ("php", "phpunit"),
        {
            "src/money.php": "<?php\nfunction add($a, $b) { return $a + $b; }\n",
            "phpunit.xml": PHPUNIT_XML,
            "tests/MoneyTest.php": PHPUNIT,
        },
        "phpunit",
        "MoneyTest::testAdds",
        ("MoneyTest::testZero",),
        "src/money.php",
    ),
    "googletest": Story(
        ("cmake", "c++", "/usr/include/gtest/gtest.h"),
        cmake(LINKED, GOOGLETEST),
        BUILT,
        "Money::Adds",
        ("Money::Zero",),
        "src/money.h",
    ),
    "CTest": Story(
        ("cmake", "c++"),
        cmake("add_test(NAME zero COMMAND money_test 0)", PROGRAM),
        BUILT,
        "money",
        ("zero",),
        "src/money.h",
    ),
    "Mix": Story(
        ("mix",),
        {
            "mix.exs": MIX,
            "lib/money.ex": "defmodule Money do\n  def add(a, b), do: a + b\nend\n",
            "test/test_helper.exs": "ExUnit.start()\n",
            "test/money_test.exs": EXUNIT,
        },
        "mix test",
        "test/money_test.exs::MoneyTest test adds",
        ("test/money_test.exs::MoneyTest test zero",),
        "lib/money.ex",
    ),
    "Gradle": Story(
        ("gradle", JUNIT),
        {"build.gradle": GRADLE, "src/main/java/Money.java": JAVA, "src/test/java/MoneyTest.java": JAVA_TEST},
        "gradle test",
        "MoneyTest::adds",
        ("MoneyTest::zero",),
        "src/main/java/Money.java",
    ),
}


def is_here(needed: str) -> bool:
    """A program, or a file by its pattern."""
    return any(Path("/").glob(needed[1:])) if needed.startswith("/") else shutil.which(needed) is not None


@pytest.mark.parametrize("name", sorted(STORIES))
async def test_a_project_of_each_language(name: str, tmp_path: Path) -> None:
    story = STORIES[name]
    if missing := [needed for needed in story.needs if not is_here(needed)]:
        pytest.skip(f"NOT TESTED with {name}: this machine lacks {', '.join(missing)}")
    results = []
    for place, sign in (("base", " + "), ("changed", " - ")):
        (tmp_path / place).mkdir()
        files = {**story.files, story.source: story.files[story.source].replace(" + ", sign)}
        chosen = await Projects(tmp_path / place, "").set_up(files)
        assert chosen.suite is not None
        assert chosen.suite.command == story.command
        results.append(chosen.trials[0].result)
    base, head = results
    assert base is not None
    assert head is not None
    programs = {"money"} if name == "googletest" else set[str]()
    assert set(base.passing or ()) == {story.adds, *story.others} | programs, base.execution.excerpt
    found = compare(story.command, base, head)
    assert set(found.newly_failing) == {story.adds} | programs, head.execution.excerpt
    assert not found.by_exit_code
