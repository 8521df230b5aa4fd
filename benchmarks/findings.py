"""One measured fact and the budget it is held to. Knows neither how it was measured nor how it is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """`value` is None when it could not be measured; the note then says why."""

    measure: str
    """The measurement it belongs to, as `--only` names it."""
    what: str
    value: float | None
    unit: str = ""
    budget: float | None = None
    at_least: bool = False
    """Whether the budget is a floor; otherwise it is a ceiling."""
    note: str = ""

    @property
    def met(self) -> bool | None:
        """None where there is no budget to meet; what could not be measured has not met its own."""
        if self.value is None:
            return False
        if self.budget is None:
            return None
        return self.value >= self.budget if self.at_least else self.value <= self.budget
