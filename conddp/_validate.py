"""Argument checks whose messages name the argument and its value: ``positive(clip_norm=c)``."""

import math
from collections.abc import Collection
from numbers import Real

__all__ = ["in_range", "one_of", "positive", "positive_integer"]


def positive(**arguments: object) -> None:
    """Raise ValueError unless every argument is a finite number above zero."""
    for name, value in arguments.items():
        _finite_number(name, value)
        if not value > 0:  # type: ignore[operator]  # a Real, checked on the line above
            raise ValueError(f"{name} must be above 0, got {name}={value!r}.")


def positive_integer(**arguments: object) -> None:
    """Raise ValueError unless every argument is a whole number of at least one."""
    for name, value in arguments.items():
        _finite_number(name, value)
        if int(value) != value or value < 1:  # type: ignore[call-overload, operator]  # a Real, as above
            raise ValueError(f"{name} must be a whole number of at least 1, got {name}={value!r}.")


def in_range(low: float, high: float, **arguments: object) -> None:
    """Raise ValueError unless every argument is a number in ``[low, high]``."""
    for name, value in arguments.items():
        _finite_number(name, value)
        if not low <= value <= high:  # type: ignore[operator]  # a Real, as above
            raise ValueError(f"{name} must lie between {low} and {high}, got {name}={value!r}.")


def one_of(choices: Collection[str], **arguments: object) -> None:
    """Raise ValueError unless every argument is one of the named choices."""
    for name, value in arguments.items():
        if value not in choices:
            listed = ", ".join(repr(choice) for choice in sorted(choices))
            raise ValueError(f"{name} must be one of {listed}, got {name}={value!r}.")


def _finite_number(name: str, value: object) -> None:
    """Raise unless the value is a finite real number; booleans are not numbers here."""
    if type(value) is not float and (isinstance(value, bool) or not isinstance(value, Real)):
        raise ValueError(f"{name} must be a number, got {name}={value!r}.")
    try:
        finite = math.isfinite(value)
    except OverflowError:
        raise ValueError(f"{name} must be finite, got a number beyond the range of floating point.") from None
    if not finite:
        raise ValueError(f"{name} must be finite, got {name}={value!r}.")
