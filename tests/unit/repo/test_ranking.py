"""Which files come first, and that the reasons say why."""

import pytest

from app.repo.index.file_index import CodeIndex, is_test, is_unlikely_place, module_names, stem
from app.repo.index.ranking import CommitChange, RankedFile, rank_files, rarity_of, read_log, subject_scores, subjects
from app.repo.index.survey import related_tests
from app.repo.index.terms import term_id
from tests.support.memory_tree import MemoryTree

SHOP = {
    "README.md": b"A shop with a cart, taxes and currencies. The cart rounds currency.\n",
    "docs/cart.md": b"The cart adds items and rounds currency amounts.\n",
    "src/shop/__init__.py": b"",
    "src/shop/cart.py": b"class Cart:\n    def add_item(self, item):\n        self.items.append(item)\n",
    "src/shop/money.py": b"def round_half_up(amount):\n    '''Round a currency amount.'''\n    return amount\n",
    "src/shop/tax.py": b"from shop.money import round_half_up\ndef tax_of(amount):\n    return round_half_up(amount)\n",
    "src/shop/export/__init__.py": b"def to_csv(cart): return ''\n",
    "src/shop/util.py": b"def first(items): return items[0]\n",
    "lib/util.py": b"def last(items): return items[-1]\n",
    "tests/test_money.py": b"from shop.money import round_half_up\ndef test_round_half_up(): round_half_up(1)\n",
    "tests/test_cart.py": b"from shop.cart import Cart\ndef test_add_item(): Cart().add_item(1)\n",
    "web/basket.ts": b"export class Basket { total(): number { return 0 } }\n",
}


def ranked(
    text: str, files: dict[str, bytes] | None = None, history: tuple[CommitChange, ...] = ()
) -> tuple[RankedFile, ...]:
    return rank_files(CodeIndex.build(MemoryTree(files or SHOP), None), text, history=history)


def first(text: str, files: dict[str, bytes] | None = None) -> RankedFile:
    return ranked(text, files)[0]


def test_words_of_the_text_find_the_file_that_is_about_them() -> None:
    best = first("Rounding of currency amounts is wrong")
    assert best.path == "src/shop/money.py"
    assert any(reason.startswith("words: ") and "currency" in reason for reason in best.reasons)


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("It fails\nsee src/shop/util.py", "src/shop/util.py", "the text names src/shop/util.py"),
        ("It fails\nsee site-packages\\shop\\util.py", "src/shop/util.py", "the text names"),
        ("It fails\nsee tax.py", "src/shop/tax.py", "the text names tax.py"),
        ("It fails\nshop.export.to_csv is odd", "src/shop/export/__init__.py", "the text names shop.export.to_csv"),
        ("It fails\n`to_csv` is odd", "src/shop/export/__init__.py", "defines to_csv"),
        ("It fails\n`Basket` is odd", "web/basket.ts", "defines Basket"),
        ('It fails\n  File "/x/shop/tax.py", line 3, in f', "src/shop/tax.py", "it appears in a traceback"),
    ],
)
def test_files_named_in_the_text_come_first(text: str, path: str, reason: str) -> None:
    best = first(text)
    assert best.path == path
    assert any(each.startswith(reason) for each in best.reasons)


def test_the_innermost_frame_comes_before_the_outer_ones() -> None:
    lines = [f'  File "/x/shop/{name}.py", line 3, in f' for name in ("c", "a", "b")]
    files = {f"shop/{name}.py": b"x = 1\n" for name in "abcd"}
    paths = [each.path for each in ranked("\n".join(["It fails", *lines]), files)]
    assert paths == ["shop/b.py", "shop/a.py", "shop/c.py", "shop/d.py"]


def test_an_ambiguous_file_name_points_at_nothing() -> None:
    assert not any("util.py" in reason for each in ranked("util.py is wrong") for reason in each.reasons)


def test_source_comes_before_its_tests_and_documents() -> None:
    paths = [each.path for each in ranked("cart add_item currency")]
    assert paths.index("src/shop/cart.py") < paths.index("tests/test_cart.py")
    assert paths.index("src/shop/cart.py") < paths.index("docs/cart.md")


def test_similar_commits_of_the_past_raise_the_files_they_changed() -> None:
    history = (
        CommitChange("Fix wrong voucher rebate", ("src/shop/util.py", "tests/test_util.py")),
        CommitChange("Bump version", ("src/shop/__init__.py",)),
        CommitChange("Fix voucher everywhere", tuple(f"src/f{number}.py" for number in range(50))),
    )
    without = {each.path: each.score for each in ranked("The voucher is ignored in the cart")}
    best = {each.path: each for each in ranked("The voucher is ignored in the cart", history=history)}
    assert best["src/shop/util.py"].score > without.get("src/shop/util.py", 0.0)
    assert best["src/shop/util.py"].reasons == (
        "changed by commits with similar subjects",
        "its commit messages use similar words",
    )
    assert best["src/shop/cart.py"].score == without["src/shop/cart.py"]


def test_a_log_is_read_with_odd_names() -> None:
    output = b"\x01One fix\0\na b.py\0sub/\xff.py\0\0\x01Empty\0\x01Two\0\nc.py\0"
    assert list(read_log(output)) == [
        CommitChange("One fix", ("a b.py", "sub/\udcff.py")),
        CommitChange("Empty", ()),
        CommitChange("Two", ("c.py",)),
    ]


def test_nothing_in_common_ranks_nothing() -> None:
    assert ranked("zzz qqq") == ()
    assert ranked("") == ()
    assert ranked("anything", {"only.bin": b"\0\1\2"}) == ()


def test_equal_scores_keep_the_order_of_the_tree() -> None:
    files = {f"{name}.py": b"volcano = 1\n" for name in "dbca"}
    assert [each.path for each in ranked("volcano", files)] == ["a.py", "b.py", "c.py", "d.py"]


@pytest.mark.parametrize(
    ("path", "test", "aside"),
    [
        ("tests/helper.py", True, True),
        ("src/test/java/shop/CartTest.java", True, True),
        ("src/cart.test.ts", True, False),
        ("dts/cart.test-d.ts", True, False),
        ("types/cart.d.ts", False, True),
        ("pkg/cart_test.go", True, False),
        ("spec/cart_spec.rb", True, True),
        ("django/test/client.py", False, True),
        ("vendor/lib.go", False, True),
        ("static/jquery.min.js", False, True),
        ("setup.py", False, True),
        ("src/shop/cart.pyi", False, True),
        ("vite.config.mts", False, True),
        ("src/config.ts", False, False),
        ("src/setup_cart.py", False, False),
        ("src/contest.py", False, False),
        ("src/latest/cart.py", False, False),
    ],
)
def test_kinds_of_files(path: str, test: bool, aside: bool) -> None:
    assert (is_test(path), is_unlikely_place(path)) == (test, aside)


def test_code_without_a_grammar_comes_before_prose_and_has_a_past() -> None:
    files = {"a.md": b"the volcano\n", "b.php": b"<?php volcano();\n", "tests/c.php": b"<?php volcano();\n"}
    assert [each.path for each in ranked("The volcano", files)] == ["b.php", "a.md", "tests/c.php"]
    history = (CommitChange("Cool the volcano", ("b.php",)), CommitChange("Bump", ("a.md",)))
    assert "changed by commits" in ranked("The volcano", files, history)[0].reasons[0]


def test_names_that_stand_for_a_file() -> None:
    assert stem("a/http/__init__.py") == "http"
    assert stem("a/cart.test.ts") == "cart"
    assert stem(".travis.yml") == ".travis.yml"
    assert list(module_names("src/shop/export/__init__.py")) == ["shop.export", "export"]


def test_related_tests_by_name_and_by_what_they_mention() -> None:
    index = CodeIndex.build(MemoryTree(SHOP), None)
    assert related_tests(index, ["src/shop/money.py"]) == ("tests/test_money.py",)
    assert related_tests(index, ["src/shop/cart.py", "nowhere.py"]) == ("tests/test_cart.py",)
    assert related_tests(index, ["tests/test_cart.py"]) == ("tests/test_cart.py",)
    assert related_tests(index, ["web/basket.ts"]) == ()


def test_related_tests_by_what_was_changed_together() -> None:
    index = CodeIndex.build(MemoryTree({**SHOP, "tests/test_receipts.py": b"def test_receipt(): pass\n"}), None)
    together = CommitChange("Round tax", ("src/shop/tax.py", "tests/test_receipts.py"))
    sweep = CommitChange(
        "Reformat", ("src/shop/tax.py", "tests/test_cart.py", *(f"src/f{each}.py" for each in range(20)))
    )
    assert "tests/test_receipts.py" not in related_tests(index, ["src/shop/tax.py"])
    found = related_tests(index, ["src/shop/tax.py"], [together, together, sweep])
    assert found[0] == "tests/test_receipts.py"
    assert "tests/test_cart.py" not in found


def test_at_most_ten_tests_are_related() -> None:
    files = {f"tests/test_cart_{number}.py": b"from cart import Basket\nBasket()\n" for number in range(30)}
    index = CodeIndex.build(
        MemoryTree({"cart.py": b"class Basket: pass\n", "tests/test_x.py": b"x = 1\n", **files}), None
    )
    assert len(related_tests(index, ["cart.py"])) == 10


def test_all_subjects_of_a_file_together_say_what_it_is_about() -> None:
    """Thirty commits speak of vouchers; those that say nothing of the query make them rare."""
    others = [CommitChange("Release", ("src/shop/money.py",)) for _ in range(100)]
    often = [
        CommitChange(f"Voucher {number} in the till of shop {number}", ("src/shop/util.py",)) for number in range(30)
    ]
    past = subjects([*often, *others, CommitChange("Bump version", ("src/shop/tax.py", "src/gone.py"))], SHOP)
    found = subject_scores(past, {term_id("voucher"): 1.0, term_id("bump"): 0.1}, rarity_of(past))
    assert found["src/shop/util.py"] == 1.0
    assert 0 < found["src/shop/tax.py"] < 0.5
    assert set(found) == {"src/shop/util.py", "src/shop/tax.py"}


CALCULATOR = {
    "lib/errors.py": b"# calc value error\n" * 5,
    "lib/values.py": b"# the value of a calc error\n" * 5,
    "lib/numbers.py": b"class Rational:\n    pass\n" + b"# arithmetic of fractions\n" * 50,
}


def test_a_name_of_the_title_that_one_file_defines_outweighs_common_words() -> None:
    text = "Rational calc value error\nThe calc error of a value: Rational('0.5', '100') is 1/100."
    best = first(text, CALCULATOR)
    assert best.path == "lib/numbers.py"
    assert best.reasons[0] == "alone defines Rational, which the title names"
    twice = {**CALCULATOR, "lib/other.py": b"class Rational: ...\n"}
    assert first(text, twice).path != "lib/numbers.py"


def test_files_that_support_tests_are_not_tests() -> None:
    files = {
        **SHOP,
        "tests/helpers.py": b"from shop.money import round_half_up\ndef rounded(): return round_half_up(1)\n",
        "tests/conftest.py": b"from shop.money import round_half_up\n",
    }
    index = CodeIndex.build(MemoryTree(files), None)
    assert related_tests(index, ["src/shop/money.py"]) == ("tests/test_money.py",)


def test_without_names_of_tests_every_file_of_their_folder_is_one() -> None:
    files = {"lib/slug.js": b"exports.slugify = (text) => text\n", "test/slug.js": b"slugify('a')\n"}
    assert related_tests(CodeIndex.build(MemoryTree(files), None), ["lib/slug.js"]) == ("test/slug.js",)
