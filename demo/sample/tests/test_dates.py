import unittest
from datetime import date

from duebook.dates import add_months, days_between, last_day_of_month, parse_day


class DatesTest(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(parse_day(" 2025-01-31 "), date(2025, 1, 31))
        for text in ("", "31.01.2025", "2025-02-30"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                parse_day(text)

    def test_last_day_of_month(self):
        self.assertEqual(last_day_of_month(2024, 2), date(2024, 2, 29))
        self.assertEqual(last_day_of_month(2025, 12), date(2025, 12, 31))

    def test_add_months(self):
        self.assertEqual(add_months(date(2025, 1, 15), 1), date(2025, 2, 15))
        self.assertEqual(add_months(date(2025, 11, 15), 3), date(2026, 2, 15))
        self.assertEqual(add_months(date(2025, 12, 1), 12), date(2026, 12, 1))

    def test_add_months_to_a_shorter_month(self):
        self.assertEqual(add_months(date(2025, 1, 31), 1), date(2025, 2, 28))
        self.assertEqual(add_months(date(2024, 1, 30), 1), date(2024, 2, 29))
        self.assertEqual(add_months(date(2024, 2, 29), 12), date(2025, 2, 28))

    def test_days_between_counts_both_ends(self):
        self.assertEqual(days_between(date(2025, 2, 1), date(2025, 2, 28)), 28)
