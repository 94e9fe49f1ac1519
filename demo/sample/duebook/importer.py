"""Reads subscriptions from a CSV file, and tells every line that is wrong."""

import csv

from duebook.cycle import Cycle
from duebook.dates import parse_day
from duebook.money import Money
from duebook.subscription import Subscription

COLUMNS = ("customer", "plan", "price", "cycle", "started", "ended")


class ImportFailed(Exception):
    """Carries one message for each wrong line, beginning with its number."""

    def __init__(self, problems):
        super().__init__("\n".join(problems))
        self.problems = problems


def read_subscriptions(lines):
    """Subscriptions in the order of the file; ``lines`` is an open file or a list of lines."""
    rows = csv.DictReader(lines, skipinitialspace=True)
    missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
    if missing:
        raise ImportFailed([f"line 1: no column {', '.join(missing)}"])
    subscriptions, problems = [], []
    for row in rows:
        try:
            subscriptions.append(_subscription(row))
        except ValueError as error:
            problems.append(f"line {rows.line_num}: {error}")
    if problems:
        raise ImportFailed(problems)
    return subscriptions


def _subscription(row):
    if None in row or None in row.values():
        raise ValueError(f"expected {len(COLUMNS)} columns")
    customer, plan = row["customer"].strip(), row["plan"].strip()
    if not customer or not plan:
        raise ValueError("customer and plan must not be empty")
    ended = row["ended"].strip()
    return Subscription(
        customer=customer,
        plan=plan,
        price=Money.parse(row["price"]),
        cycle=Cycle.parse(row["cycle"]),
        started=parse_day(row["started"]),
        ended=parse_day(ended) if ended else None,
    )
