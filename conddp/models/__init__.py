"""What a fit leaves behind: a model in the user's units, its course, and the folder that it is saved in."""

from conddp.models.diagnostics import Diagnostics
from conddp.models.fitted import FitResult, FittedModel
from conddp.models.saving import ModelFileError, SavedModel, check_folder, load_model, save_model

__all__ = [
    "Diagnostics",
    "FitResult",
    "FittedModel",
    "ModelFileError",
    "SavedModel",
    "check_folder",
    "load_model",
    "save_model",
]
