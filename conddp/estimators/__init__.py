"""scikit-learn estimators for private regression."""

from conddp.estimators.regressor import PrivateRegressor

__all__ = ["PrivateRegressor"]
