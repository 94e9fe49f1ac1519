import unittest
from datetime import date

from duebook.cycle import Cycle


class CycleTest(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(Cycle.parse("Monthly"), Cycle("months", 1))
        self.assertEqual(Cycle.parse("quarterly"), Cycle("months", 3))
        self.assertEqual(Cycle.parse("every  6 weeks"), Cycle("weeks", 6))
        self.assertEqual(Cycle.parse("every 1 month"), Cycle("months", 1))

    def test_parse_refuses_other_words(self):
        for text in ("", "daily", "every 0 weeks", "every week", "every 3 days"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                Cycle.parse(text)

    def test_after(self):
        self.assertEqual(Cycle("weeks", 2).after(date(2025, 2, 20)), date(2025, 3, 6))
        self.assertEqual(Cycle("months", 1).after(date(2025, 1, 31)), date(2025, 2, 28))
        self.assertEqual(Cycle("months", 12).after(date(2025, 6, 1)), date(2026, 6, 1))

    def test_text(self):
        self.assertEqual(str(Cycle.parse("every 3 months")), "quarterly")
        self.assertEqual(str(Cycle.parse("every 6 weeks")), "every 6 weeks")
