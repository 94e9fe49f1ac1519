"""Which invoices fall due, for which periods, and how much they come to."""

from dataclasses import dataclass
from datetime import date

from duebook.dates import ONE_DAY, days_between
from duebook.money import Money
from duebook.subscription import Subscription


@dataclass(frozen=True)
class Invoice:
    """A bill for the days from ``first`` to ``last``, both included; due on the first of them."""

    number: str
    subscription: Subscription
    first: date
    last: date
    amount: Money

    @property
    def due(self):
        return self.first


def periods(subscription, until):
    """First and last day of each full period that begins on or before ``until``."""
    first = subscription.started
    while first <= until and subscription.runs_on(first):
        following = subscription.cycle.after(first)
        yield first, following - ONE_DAY
        first = following


def amount_due(subscription, first, last):
    """The price of a period, or its share by days if the subscription ends within it."""
    ended = subscription.ended
    if ended is None or ended >= last:
        return subscription.price
    return subscription.price.share(days_between(first, ended), days_between(first, last))


def invoices(subscriptions, until):
    """All invoices due on or before ``until``, by day and customer, numbered from INV-0001."""
    due = [
        (first, subscription.customer, last, subscription)
        for subscription in subscriptions
        for first, last in periods(subscription, until)
    ]
    due.sort(key=lambda entry: entry[:2])
    return [
        Invoice(
            number=f"INV-{position:04d}",
            subscription=subscription,
            first=first,
            last=last if subscription.ended is None else min(last, subscription.ended),
            amount=amount_due(subscription, first, last),
        )
        for position, (first, _, last, subscription) in enumerate(due, start=1)
    ]
