"""The learned head: a weighted sum of features that are chosen during the fit."""

from dataclasses import dataclass, field, replace
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from conddp._validate import positive_integer
from conddp.features.calibration import Calibration
from conddp.features.column_scales import LARGEST, ColumnScales
from conddp.features.dictionary import FACTORS, MOST_FEATURES, Dictionary
from conddp.features.feature_families import Families
from conddp.features.learned_function import LearnedFunction
from conddp.heads.head import HEADS, Array, Head, Inputs, Layout, Linearity, Trace, Weights
from conddp.stored import require

__all__ = ["Learned"]

Vector = NDArray[np.float64]

HIGHEST_FREQUENCY = 1000  # of a cosine in a file; higher ones are damage
LARGEST_WEIGHT = 1e15  # in a file, of what has no unit; sums of larger ones could overflow in float32


@dataclass(frozen=True)
class Learned(Head):
    r"""A weighted sum of linear terms, products of cosines of single columns, and waves and hinges of projections.

    .. math:: f = a_0 + a^\top z + \sum_k s_k \prod_{c \le 3} \cos(\pi k_c u_c) + \sum_k w_k \cos(p_k^\top (z, v) + b_k)

    The last projections have hinges, :math:`\max(p_k^\top (z, v) + b_k, 0)`, in place of cosines. If f is calibrated,
    predictions are :math:`a + b f + \sum_j c_j \max(f - t_j, 0)` for f in a range. Outside, they are moved as far as
    at its ends.

    z are standardised values and u ranks of the public columns, and :math:`v = \sqrt{12}\,(u - 1/2)`. Which features
    there are is learned during the fit, from numbers that have been released
    (:mod:`conddp.newton.rounds`). Private columns have linear terms.

    Only :class:`~conddp.algorithms.cond_newton.CondNewton` fits this head, because it is not trained by gradients.

    Parameters
    ----------
    width : int
        Approximate number of nonlinear features.
    num_knots, num_products, num_projections, num_hinges, num_bends : int
        Sizes of a fitted model; 0 before. Hinges are the last projections, bends are those of the calibration.
    """

    summary: ClassVar[str] = r"$f = a^\top z + \sum_k s_k \prod_c \cos \pi k_c u_c + \sum_k w_k \cos(p_k^\top z + b_k)$"
    linear_in: ClassVar[Linearity] = Linearity.LEARNED
    noun: ClassVar[str] = "a model with learned features"

    width: int = 1000
    num_knots: int = field(default=0, repr=False)
    num_products: int = field(default=0, repr=False)
    num_projections: int = field(default=0, repr=False)
    num_hinges: int = field(default=0, repr=False)
    num_bends: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        positive_integer(width=self.width)
        for size in (self.num_knots, self.num_products, self.num_projections, self.num_hinges, self.num_bends):
            if size != 0:
                positive_integer(size=size)

    def make_families(self) -> Families:
        """Return the families of features to choose from."""
        return Families(self.width)

    def describe(self) -> str:
        """Return what settings and ledgers call this head; the outcome is open if the families may be simplified."""
        if self.make_families().simplify:
            return "features learned, additive if the releases do not speak for interactions"
        return repr(self)

    def explain(self, fitted: Head, reason: str, *, stopped: bool = False) -> str:
        """Return why a fit of this head has ended with ``fitted``: the reason given, unless the outcome was open."""
        if not self.make_families().simplify:
            return reason
        why = "the fit was stopped before the releases decided on its form"
        if not stopped:
            speak = "do not speak" if fitted.has_curves else "speak"
            why = f"there are enough records to tell curves from noise, and the releases {speak} for interactions"
        return f"The result is {fitted.name_model()}, because {why}."

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Return a layout with the scales of the columns, all features, and their weights.

        The last public column is the constant.
        """
        d, m, P, F = max(0, num_public - 1), self.num_knots, self.num_products, self.num_projections
        shapes: dict[str, tuple[int, ...]] = {
            "constant": (1,),
            "linear": (d,),
            "center": (d,),
            "factor": (d,),
            "knots": (d, m),
            "ranks": (d, m),
            "places": (P, FACTORS),
            "frequencies": (P, FACTORS),
            "products": (P,),
            "projections": (F, 2 * d),
            "phases": (F,),
            "waves": (F,),
        }
        if self.num_bends:
            shapes |= {"line": (4,), "bends": (self.num_bends,), "changes": (self.num_bends,)}
        return Layout({**shapes, "private": (num_private,)} if num_private else shapes)

    def export(self, function: LearnedFunction, private: Vector | None = None) -> "tuple[Learned, Vector]":
        """Return this head with the sizes of a function, and the parameters of the function.

        Parameters
        ----------
        function : LearnedFunction
            Function of the public columns.
        private : array of shape (q,), optional
            Weights of private features.
        """
        dictionary, line = function.dictionary, function.calibration
        scales, scaled = dictionary.scales, function.weights * dictionary.gains
        L, P = dictionary.axes.shape[1], len(dictionary.places)
        head = replace(
            self,
            num_knots=scales.knots.shape[1],
            num_products=P,
            num_projections=len(dictionary.phases),
            num_hinges=dictionary.num_hinges,
            num_bends=len(line.bends),
        )
        values = {
            "constant": np.array([function.constant - dictionary.means @ scaled]),
            "linear": dictionary.axes @ scaled[:L],
            "center": scales.center,
            "factor": scales.factor,
            "knots": scales.knots,
            "ranks": scales.ranks,
            "places": dictionary.places,
            "frequencies": dictionary.frequencies,
            "products": scaled[L : L + P],
            "projections": dictionary.projections,
            "phases": dictionary.phases,
            "waves": scaled[L + P :],
            "line": np.array([line.constant, line.slope, line.low, line.high]),
            "bends": line.bends,
            "changes": line.changes,
        }
        if private is not None:
            values["private"] = private
        layout = head.layout(scales.num_columns + 1, 0 if private is None else len(private))
        parameters = np.concatenate([np.ravel(values[name]) for name in layout.shapes]).astype(np.float64)
        return head, parameters

    def check_weights(self, weights: Weights) -> None:
        """Raise SchemaError for weights of a file that do not describe columns and features."""
        given = {name: np.asarray(value[0]) for name, value in weights.items()}
        d, knots, ranks, places = len(given["center"]), given["knots"], given["ranks"], given["places"]
        require(d == 0 or self.num_knots > 0, "the head has no knots for the ranks of its columns")
        require(self.num_hinges <= self.num_projections, "the head has more hinges than projections")
        require(
            self.num_products + self.num_projections <= MOST_FEATURES,
            f"the head has more than {MOST_FEATURES:,} features",
        )
        require(
            max(_largest(given["center"]), _largest(knots)) <= LARGEST and bool((given["factor"] >= 0).all()),
            "a column has a center, a scale or knots that no column has",
        )
        require(
            not (np.diff(knots, axis=1) < 0).any()
            and not (np.diff(ranks, axis=1) < 0).any()
            and not ((ranks < 0) | (ranks > 1)).any(),
            "knots and ranks of a column do not increase, or ranks are not between 0 and 1",
        )
        require(_are_whole(places, d - 1), "a feature is of a column that the model does not have")
        require(_are_whole(given["frequencies"], HIGHEST_FREQUENCY), "a frequency is not a whole number of usual size")
        if self.num_bends:
            places = np.concatenate([given["line"][2:3], given["bends"], given["line"][3:]])
            require(not (np.diff(places) <= 0).any(), "the ends and bends of the calibration do not increase")
        without_unit = (
            "constant",
            "linear",
            "products",
            "projections",
            "phases",
            "waves",
            "private",
            "line",
            "bends",
            "changes",
        )
        require(
            all(_largest(given[name]) <= LARGEST_WEIGHT for name in without_unit if name in given),
            "a weight is not of a usual size",
        )

    def make_function(self, weights: Weights) -> LearnedFunction:
        """Return the function of the public columns; its linear terms are one feature."""
        given = {name: np.asarray(value[0]) for name, value in weights.items()}
        scales = ColumnScales(given["center"], given["factor"], given["knots"], given["ranks"])
        places, frequencies = given["places"].astype(np.intp), given["frequencies"].astype(np.intp)
        number = 1 + len(places) + len(given["phases"])
        dictionary = Dictionary(
            scales,
            given["linear"][:, None],
            places,
            frequencies,
            given["projections"],
            given["phases"],
            int(self.num_hinges),
            np.zeros(number),
            np.ones(number),
            np.zeros(number, dtype=np.intp),
            ("all",),
            np.ones(1),
        )
        calibration = Calibration()
        if self.num_bends:
            constant, slope, low, high = given["line"].tolist()
            calibration = Calibration(constant, slope, given["bends"], given["changes"], low, high)
        features = np.concatenate([[1.0], given["products"], given["waves"]])
        return LearnedFunction(dictionary, features, float(given["constant"][0]), calibration)

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Compute predictions only, shape (1, n)."""
        predictions = self.make_function(weights).predict(np.asarray(public)[:, :-1])
        if private is not None:
            predictions = predictions + np.asarray(private) @ np.asarray(weights["private"][0])
        return predictions[None]

    def initialize(self, layout: Layout, rng: np.random.Generator) -> Vector:
        """Raise: there are no features before the fit."""
        self._refuse_gradients()

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Raise: the features are not trained by gradients."""
        self._refuse_gradients()

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Raise: the features are not trained by gradients."""
        self._refuse_gradients()

    def _refuse_gradients(self) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} is fitted by CondNewton, not by gradients.")


def _largest(values: NDArray[np.floating]) -> float:
    return float(np.abs(values).max(initial=0.0))


def _are_whole(values: NDArray[np.floating], at_most: int) -> bool:
    """Whether all values are whole numbers from 0 to a largest one."""
    return bool(((values == np.floor(values)) & (values >= 0) & (values <= at_most)).all())


HEADS.add("learned", Learned())
