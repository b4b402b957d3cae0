"""Made-up sales with the columns, cardinalities, gaps and distributions of the published log.

A piece of 131,072 rows depends on the seed and on its place only. So pieces can be made in any order and by several
processes, and a longer simulation begins with the rows of a shorter one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from conddp._validate import in_range, positive_integer
from conddp.research.criteo.catalogue import NUM_PRODUCTS, PRODUCT_OFFSET, Catalogue, draw_zipf
from conddp.research.criteo.columns import CATEGORIES, LABEL, LARGEST_VALUE, NUM_BINS, NUMBERS, ROW_GROUP, SCHEMA
from conddp.research.criteo.mixing import as_normal, as_uniform, mix, scale_to_bins
from conddp.research.criteo.profile import CLICKS, DELAY, DISTINCT, KNOWN, NUM_CLICKS, NUM_SALES, PRICE, VALUE

__all__ = ["Sales", "draw_sales", "simulate_criteo", "simulate_piece"]

Floats = NDArray[np.float64]
Levels = NDArray[np.int64]

NUM_USERS = 49_700_000
NOISE = 0.70  # standard deviation of what no column explains, before the label gets its distribution
CALIBRATION_ROWS = 1 << 17
GRID = np.linspace(-3.0, 3.0, 121)  # normal quantiles
OUTER = 40  # steps of the grid that the tails are extrapolated by


@dataclass(frozen=True)
class Sales:
    """Clicks with a sale, before categories are hashed.

    Parameters
    ----------
    value : array
        Amount in euros, not clipped.
    numbers : dict
        The three numbers; -1 if missing.
    levels : dict
        Number of the level of each category; -1 if missing.
    """

    value: Floats
    numbers: dict[str, Floats]
    levels: dict[str, Levels]


def simulate_criteo(num_rows: int, *, seed: int = 0, num_bins: int = NUM_BINS) -> Iterator[pa.Table]:
    """Simulate converted rows with a sale, in pieces of 131,072 rows.

    Privacy
        Nothing is read: the rows are made up from published figures.

    Parameters
    ----------
    num_rows : int
        Rows with a sale; the published log has 1,732,721.
    seed : int
        Of the rows. Products and their effects on the value are the same for every seed.
    num_bins : int
        Bins of the categories.

    Yields
    ------
    pyarrow.Table
        Columns ``value``, three numbers (a missing one is null) and 17 categories as numbers of bins.

    Examples
    --------
    >>> next(simulate_criteo(1000)).shape
    (1000, 21)
    """
    positive_integer(num_rows=num_rows, num_bins=num_bins)
    in_range(0, 2**63 - 1, seed=seed)
    for piece, start in enumerate(range(0, num_rows, ROW_GROUP)):
        yield simulate_piece(piece, num_rows=min(ROW_GROUP, num_rows - start), seed=seed, num_bins=num_bins)


def simulate_piece(piece: int, *, num_rows: int = ROW_GROUP, seed: int = 0, num_bins: int = NUM_BINS) -> pa.Table:
    """The first rows of one piece of :func:`simulate_criteo`, counted from 0."""
    sales = draw_sales(piece, seed=seed, num_rows=num_rows)
    columns = {LABEL: pa.array(np.minimum(sales.value, LARGEST_VALUE))}
    for name in NUMBERS:
        columns[name] = pa.array(sales.numbers[name], mask=sales.numbers[name] < 0)
    for place, name in enumerate(CATEGORIES):
        columns[name] = pa.array(scale_to_bins(mix(sales.levels[name] + 1, 1000 + place), num_bins))
    return pa.table(columns, schema=SCHEMA)


def draw_sales(piece: int, *, seed: int, num_rows: int = ROW_GROUP) -> Sales:
    """The first rows of one piece."""
    return _World.get().draw(_Streams(seed, piece, num_rows))


@dataclass(frozen=True)
class _Streams:
    """Random numbers of one piece. Each kind has its own stream, so fewer rows are a prefix of more."""

    seed: int
    piece: int
    num_rows: int

    def uniform(self, kind: int) -> Floats:
        return self._open(kind).random(self.num_rows)

    def normal(self, kind: int) -> Floats:
        return self._open(kind).standard_normal(self.num_rows)

    def _open(self, kind: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64DXSM([self.seed, self.piece, kind]))


class _World:
    """The catalogue, what sales depend on, and tables that give latent numbers their published distributions."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        partners = np.arange(DISTINCT["partner_id"])
        self.partner_value = as_normal(mix(partners, 401))
        self.partner_slope = 0.92 + 0.08 * (as_normal(mix(partners, 402)) > -0.4)
        self.brand_value = as_normal(mix(np.arange(DISTINCT["product_brand"]), 403))
        self.category_value = as_normal(mix(np.arange(DISTINCT["product_category(1)"]), 404))
        self.bulk = 1.0 * (as_normal(mix(np.arange(DISTINCT["product_category(1)"]), 405)) > 0.2)
        self.device_value = as_normal(mix(np.arange(DISTINCT["device_type"]), 406))
        self.knots: dict[str, Floats] = {}
        self.draw(_Streams(2018, 0, CALIBRATION_ROWS))  # fills the knots

    @staticmethod
    @lru_cache(maxsize=1)
    def get() -> "_World":
        return _World()

    def draw(self, streams: _Streams) -> Sales:
        popularity = streams.uniform(0)
        products = draw_zipf(popularity, NUM_PRODUCTS, offset=PRODUCT_OFFSET)
        facts = self.catalogue.describe(products)
        price = self._standardize("price", facts.price)
        device = draw_zipf(streams.uniform(1), DISTINCT["device_type"], exponent=1.8)
        clicks = -0.8 * ndtri(np.clip(popularity, 1e-9, 1 - 1e-9)) + 0.6 * streams.normal(2)
        delay = 0.25 * price + np.sqrt(1 - 0.25**2) * streams.normal(3)

        partner, category = facts.partner, facts.category
        slope = self.partner_slope[partner]
        latent = slope * price + (1.0 - slope) * 1.2 * self.partner_value[partner]
        latent += 0.1 * self.bulk[category] * np.maximum(-price, 0.0)  # cheap goods that are bought in numbers
        latent += 0.20 * self.partner_value[partner] + 0.12 * self.brand_value[facts.brand]
        latent += 0.15 * self.category_value[category]
        latent += 0.10 * self.device_value[device] * np.sign(delay) + 0.06 * delay - 0.05 * clicks
        latent += NOISE * streams.normal(4)
        value = VALUE.draw(self._standardize("value", latent))

        levels = facts.known
        known = streams.uniform(5)
        levels["device_type"] = np.where(known < KNOWN["device_type"] / NUM_CLICKS, device, -1)
        audience = draw_zipf(streams.uniform(6), DISTINCT["audience_id"], exponent=0.8)
        levels["audience_id"] = np.where(streams.uniform(7) < KNOWN["audience_id"] / NUM_CLICKS, audience, -1)
        levels["user_id"] = (streams.uniform(8) * NUM_USERS).astype(np.int64)
        counted = KNOWN["nb_clicks_1week"] / KNOWN["product_id"]
        has_clicks = (levels["product_id"] >= 0) & (streams.uniform(9) < counted)
        has_delay = streams.uniform(10) < 1_727_341 / NUM_SALES
        numbers = {
            "time_delay_for_conversion": np.where(has_delay, np.round(DELAY.draw(delay)), -1.0),
            "nb_clicks_1week": np.where(has_clicks, np.round(CLICKS.draw(clicks)), -1.0),
            "product_price": _round_prices(PRICE.draw(price), products),
        }
        return Sales(np.round(value, 2), numbers, levels)

    def _standardize(self, name: str, latent: Floats) -> Floats:
        """Latent numbers as standard normal ones, through their quantiles in the calibration rows."""
        if name not in self.knots:
            knots = np.quantile(latent, ndtr(GRID))
            ends = (2 * knots[0] - knots[OUTER], 2 * knots[-1] - knots[-1 - OUTER])  # tails go on as they were
            self.knots[name] = np.array([ends[0], *knots, ends[1]])
        step = OUTER * (GRID[1] - GRID[0])
        return np.asarray(np.interp(latent, self.knots[name], [GRID[0] - step, *GRID, GRID[-1] + step]))


def _round_prices(prices: Floats, products: Levels) -> Floats:
    """Prices that mostly end in 99, 00, 90 or 50 cents."""
    habit = as_uniform(mix(products, 30))
    ending = np.select([habit < 0.4, habit < 0.65, habit < 0.8, habit < 0.85], [0.99, 0.0, 0.9, 0.5], -1.0)
    ended = np.floor(prices) + ending
    return np.maximum(np.round(np.where((ending >= 0) & (prices >= 5), ended, prices), 2), 0.01)
