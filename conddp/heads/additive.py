"""The additive head: a sum of functions of single columns."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.features.feature_families import Families
from conddp.heads.head import HEADS, Weights
from conddp.heads.learned import Learned
from conddp.stored import require

__all__ = ["Additive"]


@dataclass(frozen=True)
class Additive(Learned):
    r"""A sum of a function of each public column, and of functions of a few pairs of columns.

    .. math:: f = a_0 + \sum_j f_j(x_j) + \sum_{(j, l)} f_{jl}(x_j, x_l)

    The functions are linear terms plus cosines of ranks, so each can be drawn as a curve. Which columns get
    high frequencies, and which pairs interact, is learned during the fit (:class:`~conddp.heads.learned.Learned`).
    Private columns have linear terms.

    Parameters
    ----------
    pairs : int
        About how many pairs of columns may interact: those among the columns that matter most. 0 allows none.
    width, num_knots, num_products, num_projections
        As in :class:`~conddp.heads.learned.Learned`.
    """

    summary: ClassVar[str] = r"$f = \sum_j f_j(x_j) + \sum_{(j,l)} f_{jl}(x_j, x_l)$"
    noun: ClassVar[str] = "an additive model"
    has_curves: ClassVar[bool] = True

    pairs: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pairs:
            positive_integer(pairs=self.pairs)

    def make_families(self) -> Families:
        """Return the families of features to choose from."""
        return Families(self.width, interactions=False, pairs=self.pairs)

    def check_weights(self, weights: Weights) -> None:
        """Raise SchemaError for weights of a file that are not those of a sum of functions."""
        super().check_weights(weights)
        require(not self.num_bends, "the head is additive and has bends of a calibration")

    def compute_curves(self, weights: Weights, columns: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Evaluate the function of every column at given values, without the constant and without pairs."""
        function = self.make_function(weights)
        dictionary, features = function.dictionary, function.weights
        single = (dictionary.frequencies > 0).sum(axis=1) == 1
        curves = []
        for number, values in enumerate(columns):
            X = np.zeros((len(values), dictionary.scales.num_columns)) + dictionary.scales.center
            X[:, number] = values
            own = np.concatenate([[True], single & (dictionary.places[:, 0] == number)])
            at_center = dictionary.scales.standardize(X)[:, number] * dictionary.axes[number, 0]
            evaluated = dictionary.evaluate(X)[1 : 1 + len(single)][own[1:]]
            curves.append(at_center + features[1 : 1 + len(single)][own[1:]] @ evaluated)
        return curves


HEADS.add("additive", Additive())
