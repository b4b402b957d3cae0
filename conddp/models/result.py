"""Result of a fit, returned by an algorithm or loaded from a saved model."""

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
    """A trained model with its guarantee and diagnostics. It contains public or released values only.

    Parameters
    ----------
    model : FittedModel
        Trained model, in the original features and units.
    guarantee : Guarantee
        Privacy guarantee of the fit.
    settings : mapping
        All settings of the fit, by name; they are public.
    diagnostics : Diagnostics
        Convergence of the fit, and standard deviations of its coefficients.
    transcript : Transcript
        Releases of the fit, without the released values.
    schema : Schema
        Schema of the training table.
    ledger : PrivacyLedger
        Ledger that recorded the cost. For a saved model, a read-only copy.
    design : Design, optional
        Statistics of the public training columns, if they were computed.
    versions : mapping
        Versions of the software that trained a saved model.
    feature_order : tuple of str
        Names of the features in the order of the training table; empty if it is not known.
    old_format : int, optional
        Format of the folder that the model was loaded from, if it is one that lacks evidence for the guarantee. The
        guarantee then has a remark on it, and the model cannot be saved again.
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
    old_format: int | None = None

    def predict(self, public: PublicFeatures, private: PrivateFeatures | None = None) -> NDArray[np.float64]:
        """Predict in the units of the label. No cost, because the model is already released."""
        return self.model.predict(public, private)
