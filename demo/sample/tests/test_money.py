import unittest

from duebook.money import Money


class MoneyTest(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(Money.parse("19.00 EUR"), Money("EUR", 1900))
        self.assertEqual(Money.parse(" 7 USD "), Money("USD", 700))

    def test_parse_refuses_what_is_not_an_amount(self):
        for text in ("", "EUR", "19,00 EUR", "19.5 EUR", "-3 EUR", "19.00 eur"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                Money.parse(text)

    def test_add(self):
        self.assertEqual(Money("EUR", 150) + Money("EUR", 75), Money("EUR", 225))
        with self.assertRaises(ValueError):
            Money("EUR", 1) + Money("USD", 1)

    def test_share_is_rounded_half_up(self):
        self.assertEqual(Money("EUR", 1900).share(1, 3), Money("EUR", 633))
        self.assertEqual(Money("EUR", 5).share(1, 2), Money("EUR", 3))
        self.assertEqual(Money("EUR", 1900).share(30, 30), Money("EUR", 1900))
        with self.assertRaises(ValueError):
            Money("EUR", 1900).share(4, 3)

    def test_text(self):
        self.assertEqual(str(Money("EUR", 1905)), "19.05 EUR")
