"""Amounts of money in whole cents."""

import re
from dataclasses import dataclass

_AMOUNT = re.compile(r"(?P<units>\d{1,9})(?:\.(?P<cents>\d{2}))?\s+(?P<currency>[A-Z]{3})")


@dataclass(frozen=True, order=True)
class Money:
    currency: str
    cents: int

    @classmethod
    def parse(cls, text):
        """Read an amount such as ``19.00 EUR`` or ``7 USD``."""
        match = _AMOUNT.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"not an amount: {text!r}")
        return cls(match["currency"], int(match["units"]) * 100 + int(match["cents"] or 0))

    @classmethod
    def zero(cls, currency):
        return cls(currency, 0)

    def __add__(self, other):
        if not isinstance(other, Money):
            return NotImplemented
        if other.currency != self.currency:
            raise ValueError(f"cannot add {other.currency} to {self.currency}")
        return Money(self.currency, self.cents + other.cents)

    def share(self, part, whole):
        """The given part of the amount, rounded half up to the cent."""
        if not 0 <= part <= whole or whole == 0:
            raise ValueError(f"not a share: {part} of {whole}")
        return Money(self.currency, (2 * self.cents * part + whole) // (2 * whole))

    def __str__(self):
        return f"{self.cents // 100}.{self.cents % 100:02d} {self.currency}"
