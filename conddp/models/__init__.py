"""Results of a fit: the model in the original units, diagnostics, saving and loading."""

from conddp.models.curves import Curve, Curves, Surface
from conddp.models.diagnostics import Diagnostics
from conddp.models.evaluation import CalibrationBin, Evaluation, Figure, Interval
from conddp.models.fitted import FittedModel
from conddp.models.result import FitResult
from conddp.models.saving import ModelFileError, check_folder, load_model, save_model

__all__ = [
    "CalibrationBin",
    "Curve",
    "Curves",
    "Diagnostics",
    "Evaluation",
    "Figure",
    "FitResult",
    "FittedModel",
    "Interval",
    "ModelFileError",
    "Surface",
    "check_folder",
    "load_model",
    "save_model",
]
