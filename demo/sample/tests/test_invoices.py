import unittest
from datetime import date

from duebook.cycle import Cycle
from duebook.invoices import invoices
from duebook.money import Money
from duebook.subscription import Subscription


def subscription(cycle, started, ended=None, customer="Ada", price=1900):
    return Subscription(customer, "Basic", Money("EUR", price), Cycle.parse(cycle), started, ended)


class InvoicesTest(unittest.TestCase):
    def test_monthly(self):
        due = invoices([subscription("monthly", date(2025, 1, 6))], date(2025, 3, 6))
        self.assertEqual(
            [(invoice.number, invoice.first, invoice.last) for invoice in due],
            [
                ("INV-0001", date(2025, 1, 6), date(2025, 2, 5)),
                ("INV-0002", date(2025, 2, 6), date(2025, 3, 5)),
                ("INV-0003", date(2025, 3, 6), date(2025, 4, 5)),
            ],
        )
        self.assertEqual({invoice.amount for invoice in due}, {Money("EUR", 1900)})

    def test_weekly(self):
        due = invoices([subscription("every 2 weeks", date(2025, 2, 20))], date(2025, 3, 20))
        self.assertEqual(
            [invoice.due for invoice in due], [date(2025, 2, 20), date(2025, 3, 6), date(2025, 3, 20)]
        )

    def test_nothing_is_due_before_the_start(self):
        self.assertEqual(invoices([subscription("monthly", date(2025, 1, 6))], date(2025, 1, 5)), [])

    def test_yearly_over_a_leap_day(self):
        due = invoices([subscription("yearly", date(2024, 2, 29))], date(2025, 12, 31))
        self.assertEqual([invoice.due for invoice in due], [date(2024, 2, 29), date(2025, 2, 28)])

    def test_the_last_period_is_shared_by_days(self):
        due = invoices(
            [subscription("monthly", date(2025, 4, 1), ended=date(2025, 5, 10))], date(2025, 12, 31)
        )
        self.assertEqual([invoice.amount for invoice in due], [Money("EUR", 1900), Money("EUR", 613)])
        self.assertEqual(due[-1].last, date(2025, 5, 10))

    def test_a_period_used_to_its_last_day_costs_its_price(self):
        due = invoices(
            [subscription("monthly", date(2025, 4, 1), ended=date(2025, 5, 31))], date(2025, 12, 31)
        )
        self.assertEqual([invoice.amount for invoice in due], [Money("EUR", 1900)] * 2)

    def test_by_day_and_customer(self):
        due = invoices(
            [
                subscription("monthly", date(2025, 1, 6), customer="Cleo"),
                subscription("monthly", date(2025, 1, 2), customer="Bob"),
                subscription("monthly", date(2025, 1, 6), customer="Ada"),
            ],
            date(2025, 1, 31),
        )
        self.assertEqual([invoice.subscription.customer for invoice in due], ["Bob", "Ada", "Cleo"])
