"""Invoices as text, and revenue by month."""

from collections import defaultdict

from duebook.money import Money


def invoice_lines(invoices):
    """One aligned line for each invoice."""
    rows = [
        (
            invoice.number,
            str(invoice.due),
            invoice.subscription.customer,
            invoice.subscription.plan,
            f"{invoice.first} - {invoice.last}",
            str(invoice.amount),
        )
        for invoice in invoices
    ]
    return table(rows, right={5})


def revenue_by_month(invoices):
    """Sums of what fell due, by ``YYYY-MM`` and currency, in order."""
    sums = defaultdict(dict)
    for invoice in invoices:
        month = sums[f"{invoice.due:%Y-%m}"]
        currency = invoice.amount.currency
        month[currency] = month.get(currency, Money.zero(currency)) + invoice.amount
    return {month: dict(sorted(sums[month].items())) for month in sorted(sums)}


def revenue_lines(invoices):
    rows = [
        (month, str(total))
        for month, totals in revenue_by_month(invoices).items()
        for total in totals.values()
    ]
    return table(rows, right={1})


def table(rows, right=frozenset()):
    """Lines of columns two spaces apart; those in ``right`` are aligned to the right."""
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
