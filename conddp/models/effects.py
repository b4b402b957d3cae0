"""Effects of single columns and of pairs of columns on the predictions of an additive model, as they are stored."""

from dataclasses import asdict, dataclass
from typing import Any

from conddp.features.dictionary import MOST_FEATURES
from conddp.stored import require

__all__ = ["Effect", "Effects", "PairEffect"]


@dataclass(frozen=True)
class Effect:
    """What a group of features that belong together adds to predictions, in the units of the label.

    Parameters
    ----------
    features : tuple of int
        Places of the features among those that the model has weights for: one, or several that depend on the same
        quantity, such as the indicators of a category.
    is_category : bool
        Whether the features are indicators, of which at most one is 1.
    values : tuple of float
        For one feature, its values; for indicators, the place in ``features`` of the one that is 1, or -1 if none is;
        otherwise one row after the other.
    effect, std : tuple of float
        Effect at each value, and its standard deviation given the releases.
    importance : float
        Standard deviation of the effect over the training records.
    """

    features: tuple[int, ...]
    is_category: bool
    values: tuple[float, ...]
    effect: tuple[float, ...]
    std: tuple[float, ...]
    importance: float


@dataclass(frozen=True)
class PairEffect:
    """What two groups of features add together, beyond the sum of their effects.

    Parameters
    ----------
    first, second : int
        Places of the groups among the effects of single groups.
    first_values, second_values : tuple of float
        Values of both, as in :class:`Effect`.
    effect, std : tuple of float
        Effect at each pair of values, with the second varying fastest, and its standard deviation.
    importance : float
        Standard deviation of the effect over the training records.
    """

    first: int
    second: int
    first_values: tuple[float, ...]
    second_values: tuple[float, ...]
    effect: tuple[float, ...]
    std: tuple[float, ...]
    importance: float


@dataclass(frozen=True)
class Effects:
    """All effects of an additive model. Their sum, with the constant, is its prediction before clamping.

    Privacy
        Computed from released parameters, public rows and known noise: no cost.

    Parameters
    ----------
    constant : float
        Mean of the predictions for the training records, in the units of the label, with private numbers at the
        midpoint of their ranges.
    singles : tuple of Effect
        Effects of single groups of features.
    pairs : tuple of PairEffect
        Effects of pairs of groups.
    """

    constant: float
    singles: tuple[Effect, ...]
    pairs: tuple[PairEffect, ...] = ()

    def check(self, num_features: int) -> None:
        """Raise SchemaError unless the effects fit together and are of a model with so many public features."""
        described = [place for each in self.singles for place in each.features]
        require(len(set(described)) == len(described), "two effects are of the same feature")
        for each in self.singles:
            width = 1 if each.is_category else len(each.features)
            places = [*each.features]
            require(
                bool(places) and places == sorted(set(places)) and 0 <= places[0] and places[-1] < num_features,
                "an effect is not of public features of the model",
            )
            require(
                len(each.values) == width * len(each.effect) and len(each.effect) == len(each.std) > 0,
                "an effect does not have a number and a standard deviation for every value",
            )
            self._check_values(each, each.values)
            require(min((each.importance, *each.std)) >= 0, "a standard deviation of an effect is negative")
        require(len(self.pairs) <= MOST_FEATURES, "there are more effects of pairs than a model has features")
        require(len({(pair.first, pair.second) for pair in self.pairs}) == len(self.pairs), "a pair has two effects")
        for pair in self.pairs:
            require(0 <= pair.first < pair.second < len(self.singles), "the effect of a pair is of unknown columns")
            for place, values in self._list_sides(pair):
                self._check_values(self.singles[place], values)
            widths = [self.count_values(place, values) for place, values in self._list_sides(pair)]
            require(
                widths[0] * widths[1] == len(pair.effect) == len(pair.std) > 0,
                "the effect of a pair does not have a number for every pair of values",
            )
            require(min((pair.importance, *pair.std)) >= 0, "a standard deviation of an effect is negative")

    @staticmethod
    def _check_values(each: Effect, values: tuple[float, ...]) -> None:
        """Raise SchemaError unless values are levels of a category, or rows of one number for each feature."""
        if each.is_category:
            levels = range(-1, len(each.features))
            require(
                len(set(values)) == len(values) and all(value in levels for value in values),
                "an effect of a category is of levels that it does not have",
            )
        require(
            each.is_category or len(values) % len(each.features) == 0,
            "an effect of several features does not have a number for each of them",
        )

    def count_values(self, single: int, values: tuple[float, ...]) -> int:
        """Return the number of values of a group, of which each may be a row."""
        each = self.singles[single]
        return len(values) // (1 if each.is_category else len(each.features))

    @staticmethod
    def _list_sides(pair: PairEffect) -> tuple[tuple[int, tuple[float, ...]], ...]:
        return (pair.first, pair.first_values), (pair.second, pair.second_values)

    def to_json(self) -> dict[str, Any]:
        """Return the effects in their stored form."""
        return asdict(self)
