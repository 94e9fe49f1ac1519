"""How often a subscription is billed."""

import re
from dataclasses import dataclass
from datetime import timedelta

from duebook.dates import add_months

_NAMED = {
    "weekly": ("weeks", 1),
    "monthly": ("months", 1),
    "quarterly": ("months", 3),
    "yearly": ("months", 12),
}
_EVERY = re.compile(r"every (?P<count>[1-9]\d?) (?P<unit>week|month)s?")


@dataclass(frozen=True)
class Cycle:
    """A number of weeks or months."""

    unit: str
    count: int

    @classmethod
    def parse(cls, text):
        """Read a cycle such as ``monthly`` or ``every 6 weeks``."""
        words = " ".join(text.lower().split())
        if words in _NAMED:
            return cls(*_NAMED[words])
        match = _EVERY.fullmatch(words)
        if match is None:
            raise ValueError(f"not a cycle: {text!r} (try {', '.join(_NAMED)}, or 'every 6 weeks')")
        return cls(match["unit"] + "s", int(match["count"]))

    def after(self, day):
        """The first day of the period that follows the one beginning on the given day."""
        if self.unit == "weeks":
            return day + timedelta(weeks=self.count)
        return add_months(day, self.count)

    def __str__(self):
        for name, (unit, count) in _NAMED.items():
            if (unit, count) == (self.unit, self.count):
                return name
        return f"every {self.count} {self.unit}"
