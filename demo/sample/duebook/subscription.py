"""What a customer has subscribed to, and since when."""

from dataclasses import dataclass
from datetime import date
from typing import Optional

from duebook.cycle import Cycle
from duebook.money import Money


@dataclass(frozen=True)
class Subscription:
    customer: str
    plan: str
    price: Money
    cycle: Cycle
    started: date
    ended: Optional[date] = None

    def __post_init__(self):
        if self.ended is not None and self.ended < self.started:
            raise ValueError(f"ended on {self.ended}, before it started on {self.started}")

    def runs_on(self, day):
        return self.started <= day and (self.ended is None or day <= self.ended)
