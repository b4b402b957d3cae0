"""Curators that add no noise, or noise of the test's choice: to see what is released without it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from conddp.privacy.release import Curator


class SilentCurator(Curator):
    """Records releases as ever, but adds no Gaussian noise."""

    def _add_normal(self, value: Any, noise_std: Any) -> Any:
        return np.array(value)


class ChosenNoise(Curator):
    """Adds what a function returns, times the standard deviation."""

    draw: Callable[[], Any]

    def _add_normal(self, value: Any, noise_std: Any) -> Any:
        return np.asarray(value) + np.reshape(noise_std, (-1, 1)) * self.draw()
