import pytest

from conddp.heads import HEADS, MLP, Linear
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


def test_a_name_is_found_by_the_class_whatever_its_settings() -> None:
    assert HEADS.find_name(MLP(hidden=(3,))) == "mlp" and HEADS.find_name(Linear()) == "linear"
    assert HEADS.find_name(type("Own", (Linear,), {})()) == "Own"


def test_every_head_has_a_noun_or_is_called_by_its_class() -> None:
    nouns = [head.name_model() for name, head in HEADS.items() if name != "auto"]
    assert len(set(nouns)) == len(nouns) and all(noun.startswith(("a ", "an ")) for noun in nouns)
    assert not any("head" in noun for noun in nouns)
    assert type("Own", (Linear,), {"noun": ""})().name_model() == "a model with the head Own"
