"""Published figures of the log, and distributions that go through them.

Counts and shares are those of the whole file of 15,995,634 clicks, quartiles those of the 1,279,493 sales with a known
product. Quantiles above the third quartile are ours, except for the largest values and the 95th percentile of sales:
they were chosen so that the means come out as published.
"""

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

__all__ = ["CLICKS", "DELAY", "DISTINCT", "KNOWN", "NUM_CLICKS", "NUM_SALES", "PRICE", "VALUE", "Quantiles"]

Floats = NDArray[np.float64]

NUM_CLICKS = 15_995_634
NUM_SALES = 1_732_721

# Cells that are not missing, of all clicks.
KNOWN = MappingProxyType(
    {
        "nb_clicks_1week": 9_251_207,
        "product_age_group": 4_235_576,
        "device_type": 15_992_602,
        "audience_id": 4_493_616,
        "product_gender": 4_341_439,
        "product_brand": 8_754_074,
        "product_category(1)": 9_852_878,
        "product_category(2)": 9_844_385,
        "product_category(3)": 8_652_958,
        "product_category(4)": 5_501_326,
        "product_category(5)": 1_400_580,
        "product_category(6)": 278_484,
        "product_category(7)": 220,
        "product_country": 12_160_832,
        "product_id": 12_167_296,
        "product_title": 9_787_460,
        "partner_id": 15_995_634,
        "user_id": 15_995_634,
    }
)

# Different values, among all clicks.
DISTINCT = MappingProxyType(
    {
        "product_age_group": 11,
        "device_type": 8,
        "audience_id": 18_228,
        "product_gender": 17,
        "product_brand": 55_983,
        "product_category(1)": 21,
        "product_category(2)": 173,
        "product_category(3)": 1_037,
        "product_category(4)": 1_552,
        "product_category(5)": 841,
        "product_category(6)": 213,
        "product_category(7)": 5,
        "product_country": 23,
        "product_id": 1_628_064,
        "product_title": 790_521,
        "partner_id": 312,
        "user_id": 13_708_490,
    }
)


@dataclass(frozen=True)
class Quantiles:
    """A distribution of numbers above -1, given by quantiles.

    Parameters
    ----------
    probabilities, values : tuple of float
        Quantiles. Between them log(1 + value) is linear in the normal quantile.
    """

    probabilities: tuple[float, ...]
    values: tuple[float, ...]

    def draw(self, normal: Floats) -> Floats:
        """Numbers of this distribution, from standard normal ones."""
        return np.asarray(np.expm1(np.interp(normal, ndtri(self.probabilities), np.log1p(self.values))))


_LEVELS = (1e-4, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 0.9999, 1 - 5e-7)
VALUE = Quantiles(_LEVELS, (0.01, 2.0, 7.5, 25.87, 56.66, 133.25, 400.0, 1080.0, 2900.0, 7500.0, 62458.77))
PRICE = Quantiles(_LEVELS, (0.05, 1.5, 4.5, 17.9, 40.0, 99.99, 380.0, 1030.0, 3700.0, 10800.0, 76161.01))
CLICKS = Quantiles(_LEVELS, (0, 0, 0, 3, 22, 124, 1220, 4200, 10800, 18000, 23822))
DELAY = Quantiles(_LEVELS, (5, 30, 90, 707, 7260, 463808, 2.0e6, 2.45e6, 2.58e6, 2.588e6, 2588699))
