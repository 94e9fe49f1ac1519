"""The command line: ``python3 -m duebook invoices|revenue FILE --until DAY``."""

import argparse
import sys

from duebook.dates import parse_day
from duebook.importer import ImportFailed, read_subscriptions
from duebook.invoices import invoices
from duebook.report import invoice_lines, revenue_lines


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="duebook", description="Invoices for subscriptions, from a CSV file."
    )
    parser.add_argument("report", choices=("invoices", "revenue"))
    parser.add_argument("file", help="CSV file of subscriptions")
    parser.add_argument("--until", required=True, metavar="DAY", help="last day to bill, YYYY-MM-DD")
    options = parser.parse_args(arguments)
    try:
        until = parse_day(options.until)
        with open(options.file, newline="", encoding="utf-8-sig") as file:
            due = invoices(read_subscriptions(file), until)
    except (OSError, ValueError, ImportFailed) as error:
        print(f"duebook: {error}", file=sys.stderr)
        return 1
    lines = invoice_lines(due) if options.report == "invoices" else revenue_lines(due)
    print("\n".join(lines) if lines else f"Nothing is due until {until}.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
