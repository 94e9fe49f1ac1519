import unittest
from datetime import date

from duebook.cycle import Cycle
from duebook.importer import ImportFailed, read_subscriptions
from duebook.money import Money
from duebook.subscription import Subscription

HEADER = "customer,plan,price,cycle,started,ended"


class ImporterTest(unittest.TestCase):
    def failure(self, *lines):
        with self.assertRaises(ImportFailed) as caught:
            read_subscriptions(lines)
        return caught.exception.problems

    def test_reads_subscriptions(self):
        lines = [
            HEADER,
            '"Miller, Sons", Basic, 19.00 EUR, monthly, 2025-01-06,',
            "Ada,Pro,49 USD,yearly,2024-05-01,2025-04-30",
        ]
        self.assertEqual(
            read_subscriptions(lines),
            [
                Subscription(
                    "Miller, Sons", "Basic", Money("EUR", 1900), Cycle("months", 1), date(2025, 1, 6)
                ),
                Subscription(
                    "Ada", "Pro", Money("USD", 4900), Cycle("months", 12), date(2024, 5, 1), date(2025, 4, 30)
                ),
            ],
        )

    def test_columns_may_stand_in_any_order(self):
        lines = ["started,ended,cycle,price,plan,customer", "2025-01-06,,weekly,5 EUR,Basic,Ada"]
        self.assertEqual(read_subscriptions(lines)[0].customer, "Ada")

    def test_tells_every_wrong_line(self):
        problems = self.failure(
            HEADER,
            "Ada,Basic,19 EUR,monthly,2025-01-06,",
            "Bob,Basic,cheap,monthly,2025-01-06,",
            "Cleo,Basic,19 EUR,monthly,2025-01-06,2025-01-05",
            ",Basic,19 EUR,monthly,2025-01-06,",
            "Eve,Basic",
        )
        self.assertEqual(
            [problem.split(":")[0] for problem in problems], ["line 3", "line 4", "line 5", "line 6"]
        )

    def test_tells_missing_columns(self):
        self.assertEqual(self.failure("customer,plan,price,started"), ["line 1: no column cycle, ended"])
        self.assertEqual(len(self.failure()), 1)
