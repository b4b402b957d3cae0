import pytest

from conddp.heads import HEADS, Linear
from conddp.registry import Registry


def test_a_class_name_that_another_class_has_is_refused() -> None:
    stranger = type("Linear", (Linear,), {"__module__": "elsewhere"})
    with pytest.raises(ValueError, match="another head class Linear"):
        HEADS.add("stranger", stranger())
    assert "stranger" not in HEADS


def test_a_name_that_another_class_has_is_refused() -> None:
    other = type("Other", (Linear,), {})
    with pytest.raises(ValueError, match="'linear' is taken by Linear"):
        HEADS.add("linear", other())


def test_what_is_not_of_the_kind_is_refused() -> None:
    numbers: Registry[int] = Registry("number", int)
    with pytest.raises(ValueError, match="must be a int"):
        numbers.add("one", "1")  # type: ignore[arg-type]  # wrong on purpose
    numbers.add("one", 1)
    with pytest.raises(ValueError, match="number must be one of 'one' or an instance"):
        numbers.resolve(1.5)
    with pytest.raises(ValueError, match="number must be one of 'one'"):
        numbers.resolve("two")
