"""What a fit gives back, from an algorithm or from the folder that it was saved in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PrivateFeatures, PublicFeatures
from conddp.data.schema import Schema
from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FittedModel
from conddp.privacy.guarantee import Guarantee
from conddp.privacy.ledger import PrivacyLedger
from conddp.privacy.transcript import Transcript
from conddp.theory.design import Design

__all__ = ["FitResult"]


@dataclass(frozen=True)
class FitResult:
    """A trained model and everything that may be said about it. Nothing in it is private any more.

    Parameters
    ----------
    model : FittedModel
        In the user's features and units.
    guarantee : Guarantee
        What it promises.
    settings : mapping
        Every choice that was made, by name; all of them public.
    diagnostics : Diagnostics
        The course of the fit, and the uncertainty of its coefficients.
    transcript : Transcript
        What was released, without the numbers.
    schema : Schema
        Of the table that it was trained on.
    ledger : PrivacyLedger
        The one that paid; for a saved model a copy of it, from which nothing can be spent.
    design : Design, optional
        Facts about the public columns that it was trained on, where they were computed.
    versions : mapping
        Of the software that trained a saved model.
    feature_order : tuple of str
        Public and private columns in the order of the table; empty if that is not known.
    """

    model: FittedModel
    guarantee: Guarantee
    settings: Mapping[str, Any]
    diagnostics: Diagnostics
    transcript: Transcript
    schema: Schema
    ledger: PrivacyLedger
    design: Design | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    feature_order: tuple[str, ...] = ()

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predictions in the label's units. Costs nothing: the model is already released."""
        return self.model.predict(public, private)
