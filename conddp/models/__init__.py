"""Results of a fit: the model in the original units, diagnostics, saving and loading."""

from conddp.models.curves import Curve, Curves, Surface
from conddp.models.diagnostics import Diagnostics
from conddp.models.evaluation import CalibrationBin, Evaluation, Figure, Interval
from conddp.models.fitted import FittedModel
from conddp.models.prediction import estimate_deviations, estimate_intervals
from conddp.models.result import FitResult
from conddp.models.saving import ModelFileError, check_folder, load_model, save_model
from conddp.models.summary import CoefficientRow, Summary
from conddp.models.uncertainty import CoefficientEstimates, Uncertainty

__all__ = [
    "CalibrationBin",
    "CoefficientEstimates",
    "CoefficientRow",
    "Curve",
    "Curves",
    "Diagnostics",
    "Evaluation",
    "Figure",
    "FitResult",
    "FittedModel",
    "Interval",
    "ModelFileError",
    "Summary",
    "Surface",
    "Uncertainty",
    "check_folder",
    "estimate_deviations",
    "estimate_intervals",
    "load_model",
    "save_model",
]
