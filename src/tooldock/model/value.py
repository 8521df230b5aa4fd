"""Values of which there is one for each call.

The type checker takes them for frozen, and so should everybody. At run time they are not: freezing makes a dataclass of
a dozen members cost more than a microsecond, and every call makes two.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[T]) -> type[T]:
    return dataclass(slots=True)(cls)
