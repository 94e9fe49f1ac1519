"""Arithmetic with calendar days."""

from calendar import monthrange
from datetime import date, timedelta

ONE_DAY = timedelta(days=1)


def parse_day(text):
    """Read a day such as ``2025-01-31``."""
    try:
        return date.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"not a day (YYYY-MM-DD): {text!r}") from None


def last_day_of_month(year, month):
    return date(year, month, monthrange(year, month)[1])


def add_months(day, months):
    """The same day of the month so many months later, or that month's last day if it is too short."""
    count = day.year * 12 + day.month - 1 + months
    last = last_day_of_month(count // 12, count % 12 + 1)
    return last if day.day > last.day else last.replace(day=day.day)


def days_between(first, last):
    """How many days from the first to the last, both included."""
    return (last - first).days + 1
