import contextlib
import io
import tempfile
import unittest
from pathlib import Path

from duebook.__main__ import main

SUBSCRIPTIONS = """customer,plan,price,cycle,started,ended
Anna's Bakery,Basic,19.00 EUR,monthly,2025-01-06,
Bob & Co,Pro,490.00 EUR,yearly,2024-07-01,2025-03-31
"""


class MainTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "subscriptions.csv")
        self.file.write_text(SUBSCRIPTIONS, encoding="utf-8")

    def call(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(arguments))
        return code, out.getvalue(), err.getvalue()

    def test_invoices(self):
        code, out, _ = self.call("invoices", str(self.file), "--until", "2025-02-28")
        self.assertEqual(code, 0)
        self.assertEqual([line[:8] for line in out.splitlines()], ["INV-0001", "INV-0002", "INV-0003"])

    def test_revenue(self):
        code, out, _ = self.call("revenue", str(self.file), "--until", "2025-02-28")
        self.assertEqual(code, 0)
        self.assertEqual(out.splitlines()[0], "2024-07  367.84 EUR")

    def test_nothing_due(self):
        code, out, _ = self.call("invoices", str(self.file), "--until", "2024-01-01")
        self.assertEqual((code, out), (0, "Nothing is due until 2024-01-01.\n"))

    def test_wrong_input(self):
        self.file.write_text(SUBSCRIPTIONS.replace("yearly", "daily"), encoding="utf-8")
        for arguments in (
            ("invoices", str(self.file), "--until", "2025-02-28"),
            ("invoices", "no-such-file", "--until", "2025-02-28"),
        ):
            code, out, err = self.call(*arguments)
            self.assertEqual((code, out), (1, ""))
            self.assertTrue(err.startswith("duebook: "))
