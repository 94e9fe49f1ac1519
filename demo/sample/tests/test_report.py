import unittest
from datetime import date

from duebook.cycle import Cycle
from duebook.invoices import invoices
from duebook.money import Money
from duebook.report import invoice_lines, revenue_by_month, revenue_lines, table
from duebook.subscription import Subscription

ADA = Subscription("Ada", "Basic", Money("EUR", 1900), Cycle("months", 1), date(2025, 1, 6))
BOB = Subscription("Bob & Co", "Pro", Money("USD", 4900), Cycle("months", 3), date(2025, 1, 10))


class ReportTest(unittest.TestCase):
    def test_invoice_lines(self):
        self.assertEqual(
            invoice_lines(invoices([ADA, BOB], date(2025, 1, 31))),
            [
                "INV-0001  2025-01-06  Ada       Basic  2025-01-06 - 2025-02-05  19.00 EUR",
                "INV-0002  2025-01-10  Bob & Co  Pro    2025-01-10 - 2025-04-09  49.00 USD",
            ],
        )

    def test_revenue(self):
        due = invoices([ADA, BOB], date(2025, 2, 28))
        self.assertEqual(
            revenue_by_month(due),
            {
                "2025-01": {"EUR": Money("EUR", 1900), "USD": Money("USD", 4900)},
                "2025-02": {"EUR": Money("EUR", 1900)},
            },
        )
        self.assertEqual(
            revenue_lines(due), ["2025-01  19.00 EUR", "2025-01  49.00 USD", "2025-02  19.00 EUR"]
        )

    def test_empty_table(self):
        self.assertEqual(table([]), [])
