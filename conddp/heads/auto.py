"""The automatic choice of a head, from public information only."""

from dataclasses import dataclass, replace
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.features.feature_families import Families
from conddp.features.learned_function import LearnedFunction
from conddp.heads.additive import Additive
from conddp.heads.head import HEADS, Array, Circumstances, Head, Inputs, Layout, Linearity, Trace, Weights
from conddp.heads.learned import Learned
from conddp.heads.linear import Linear
from conddp.privacy.accounting import calibrate_gaussian_mu

__all__ = ["AutoHead"]

Vector = NDArray[np.float64]

FEWEST_NOISE_RECORDS = 200.0  # mu times the number of records; below, a function of the columns drowns in noise
FEWEST_WITH_PRIVATE = 400.0  # the same with private columns, for which a part of the budget is set aside
MOST_RECORDS = 100_000  # from here on, the numbers of a linear model have piecewise linear features
MOST_COLUMNS = 300  # public columns, levels of categories included
MOST_CELLS = 5e6  # records times public columns; more take minutes


@dataclass(frozen=True)
class LearnedOrAdditive(Learned):
    """Learned features during the fit; an additive model at the end if the releases do not speak for interactions."""

    def make_families(self) -> Families:
        """Return the families of features to choose from."""
        return replace(super().make_families(), simplify=True)

    def export(self, function: LearnedFunction, private: Vector | None = None) -> tuple[Learned, Vector]:
        """Return an additive head if the features are functions of single columns, and a learned one otherwise."""
        kind = Additive if function.dictionary.find_additive().all() else Learned
        return kind(self.width).export(function, private)


@dataclass(frozen=True)
class AutoHead(Head):
    """Stands for a linear model, an additive one, or one with learned features.

    :meth:`settle` decides between a linear model and learned features before the fit, from the number of records, the
    budget and the columns. If features are learned, what was released decides whether the result is an additive
    model, which has curves, or a model with interactions.

    Privacy
        The choice before the fit depends on public information only, and the one at the end on released numbers: no
        cost.
    """

    summary: ClassVar[str] = "linear, additive or learned, whichever suits records and budget"
    linear_in: ClassVar[Linearity] = Linearity.COLUMNS  # until it is settled, it is treated as a linear model

    def settle(self, public_features: PublicFeatures, circumstances: Circumstances) -> tuple[Head, str]:
        """Return the head to fit, and the reason."""
        reason = self._find_obstacle(public_features, circumstances)
        if reason:
            return Linear(), f"The model is linear, because {reason}."
        if len(public_features.names) == 1 and not circumstances.num_private:
            return Additive(), "The model is a curve, because there is one public column."
        return LearnedOrAdditive(), (
            "Features are learned, because there are enough records to tell curves from noise; the model is close to a "
            "linear one where the releases do not say more, and additive if they do not speak for interactions."
        )

    @staticmethod
    def _find_obstacle(public_features: PublicFeatures, circumstances: Circumstances) -> str:
        """Why the model is linear, as a clause; empty if nothing speaks against learned features."""
        n, d = len(public_features), len(public_features.names)
        if not circumstances.learns_features:
            return "the algorithm cannot learn features"
        if circumstances.delta == 0:
            return "delta is 0, and learning features needs Gaussian noise"
        if not circumstances.fit_intercept:
            return "there is no intercept, which learned features need"
        if public_features.sparse is not None:
            return "the public columns are sparse"
        if not circumstances.in_memory:
            return "the public columns are not in memory"
        if n >= MOST_RECORDS or d > MOST_COLUMNS or n * d > MOST_CELLS:
            return f"learning features of {n:,} records and {d:,} columns takes minutes; ask for head='learned'"
        if d == 0:
            return "there are no public columns"
        mu = calibrate_gaussian_mu(circumstances.epsilon, circumstances.delta)
        if mu * circumstances.num_protected < (
            FEWEST_WITH_PRIVATE if circumstances.num_private else FEWEST_NOISE_RECORDS
        ):
            return "there are too few records for this budget to tell curves from noise"
        return ""

    def layout(self, num_public: int, num_private: int) -> Layout:
        """Raise: this head has no parameters."""
        self._refuse()

    def initialize(self, layout: Layout, rng: np.random.Generator) -> Vector:
        """Raise: this head has no parameters."""
        self._refuse()

    def forward(self, weights: Weights, inputs: Inputs) -> Trace:
        """Raise: this head has no parameters."""
        self._refuse()

    def vjp(self, weights: Weights, inputs: Inputs, trace: Trace, coefficients: Array, out: Weights) -> None:
        """Raise: this head has no parameters."""
        self._refuse()

    def predict(self, weights: Weights, public: Array, private: Array | None) -> Array:
        """Raise: this head has no parameters."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ValueError("the head 'auto' stands for another one, which settle returns.")


HEADS.add("auto", AutoHead())
