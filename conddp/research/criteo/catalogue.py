"""The made-up world of the simulator: products with their categories, brand, partner and price.

Every fact about a product is computed from its number, so that there is no table of millions of products. The world is
the same for every seed of the simulation.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from conddp.research.criteo.mixing import as_normal, as_uniform, mix
from conddp.research.criteo.profile import DISTINCT, KNOWN, NUM_CLICKS

__all__ = ["Catalogue", "Products", "draw_zipf"]

Levels = NDArray[np.int64]
Floats = NDArray[np.float64]

DEPTHS = 7  # levels of categories
NUM_PRODUCTS = 3_480_000
PRODUCT_OFFSET = 40.0
ITEMS_PER_PRODUCT = 0.36  # products of one item have the same title, brand and categories
BRANDS_PER_CATEGORY = 2_750
PARTNERS_PER_CATEGORY = 15
SHARE_OF_LARGE_PARTNERS = 0.2


def draw_zipf(uniform: Floats, num_levels: int, *, exponent: float = 1.0, offset: float = 0.0) -> Levels:
    """Levels from 0 to ``num_levels`` - 1, with frequencies close to 1 / (level + 1 + offset) ** exponent."""
    low, high = 1.0 + offset, 1.0 + offset + num_levels
    if exponent == 1.0:
        place = low * (high / low) ** uniform
    else:
        power = 1.0 - exponent
        place = (low**power + uniform * (high**power - low**power)) ** (1.0 / power)
    return np.minimum((place - low).astype(np.int64), num_levels - 1)


def _share(name: str, *, of: str) -> float:
    return KNOWN[name] / KNOWN[of]


@dataclass(frozen=True)
class Products:
    """Facts about the products of some clicks.

    Parameters
    ----------
    known : dict
        Level of every column that describes the product; -1 where the log does not say.
    category, brand, partner : array of int
        First-level category, brand and partner, also where the log does not say.
    price : array
        Latent price, about standard normal.
    """

    known: dict[str, Levels]
    category: Levels
    brand: Levels
    partner: Levels
    price: Floats


class Catalogue:
    """The world: parents of categories, and effects of levels on prices."""

    @cached_property
    def parents(self) -> list[Levels]:
        """For every level of categories below the first, the parent of each category."""
        found = []
        for depth in range(2, DEPTHS + 1):
            nodes = np.arange(DISTINCT[f"product_category({depth})"])
            above = DISTINCT[f"product_category({depth - 1})"]
            found.append(draw_zipf(as_uniform(mix(nodes, 100 + depth)), above, exponent=0.6))
        return found

    @cached_property
    def category_prices(self) -> list[Floats]:
        """Effect of the first three levels of categories on the latent price."""
        return [as_normal(mix(np.arange(DISTINCT[f"product_category({depth})"]), 200 + depth)) for depth in range(1, 4)]

    @cached_property
    def partner_countries(self) -> Levels:
        """Home country of every partner."""
        return draw_zipf(as_uniform(mix(np.arange(DISTINCT["partner_id"]), 300)), DISTINCT["product_country"])

    def describe(self, products: Levels) -> Products:
        """Facts about products, by their numbers."""
        item = (products * ITEMS_PER_PRODUCT).astype(np.int64)
        category = self._draw_categories(item)
        brand = category[0] + 21 * draw_zipf(as_uniform(mix(item, 11)), BRANDS_PER_CATEGORY, exponent=0.6)
        brand %= DISTINCT["product_brand"]
        partner = self._draw_partners(products, category[0])
        return Products(
            self._mask(products, item, category, brand, partner),
            category[0],
            brand,
            partner,
            self._draw_prices(products, item, category, brand),
        )

    def _draw_categories(self, item: Levels) -> list[Levels]:
        """Categories of all levels, those above the item's own being its ancestors; -1 below its depth."""
        names = [f"product_category({level})" for level in range(1, DEPTHS + 1)]
        deeper = np.array([KNOWN[name] / KNOWN[names[0]] for name in names[1:]])
        depth = 1 + np.searchsorted(-deeper, -as_uniform(mix(item, 12)), side="left")
        place = as_uniform(mix(item, 13))
        category = [np.full(len(item), -1) for _ in range(DEPTHS)]
        for level in range(1, DEPTHS + 1):
            here = np.flatnonzero(depth == level)
            node = draw_zipf(place[here], DISTINCT[names[level - 1]], exponent=0.9)
            category[level - 1][here] = node
            for above in range(level - 1, 0, -1):
                node = self.parents[above - 1][node]
                category[above - 1][here] = node
        return category

    def _draw_partners(self, products: Levels, category: Levels) -> Levels:
        """A partner sells one category, or is one of the thirty large ones."""
        which = as_uniform(mix(products, 14))
        special = category + 21 * draw_zipf(which, PARTNERS_PER_CATEGORY)
        large = draw_zipf(which, 30)
        of_large = as_uniform(mix(products, 15)) < SHARE_OF_LARGE_PARTNERS
        return np.where(of_large, large, special % DISTINCT["partner_id"])

    def _draw_prices(self, products: Levels, item: Levels, category: list[Levels], brand: Levels) -> Floats:
        price = 0.45 * self.category_prices[0][category[0]]
        price += 0.45 * np.where(category[1] >= 0, self.category_prices[1][category[1]], 0.0)
        price += 0.35 * np.where(category[2] >= 0, self.category_prices[2][category[2]], 0.0)
        price += 0.35 * as_normal(mix(brand, 16))
        price += 0.50 * as_normal(mix(item, 17))
        price += 0.25 * as_normal(mix(products, 18))
        return np.asarray(price)

    def _mask(
        self,
        products: Levels,
        item: Levels,
        category: list[Levels],
        brand: Levels,
        partner: Levels,
    ) -> dict[str, Levels]:
        """What the log says: nothing about a quarter of the products, and not everything about the others."""
        described = as_uniform(mix(products, 20)) < KNOWN["product_id"] / NUM_CLICKS
        has_category = described & (as_uniform(mix(item, 21)) < _share("product_category(1)", of="product_id"))
        has_title = described & (as_uniform(mix(item, 22)) < _share("product_title", of="product_id"))
        has_brand = described & (as_uniform(mix(item, 23)) < _share("product_brand", of="product_id"))
        has_country = described & (as_uniform(mix(products, 24)) < _share("product_country", of="product_id"))
        wearer = as_uniform(mix(item, 25))
        has_gender = described & (wearer < _share("product_gender", of="product_id"))
        has_age = described & (wearer < _share("product_age_group", of="product_id"))
        abroad = as_uniform(mix(products, 26))
        countries = DISTINCT["product_country"]
        country = np.where(
            abroad < 0.15, draw_zipf(abroad / 0.15, countries, exponent=1.5), self.partner_countries[partner]
        )
        gender = draw_zipf(as_uniform(mix(item, 27)), DISTINCT["product_gender"], exponent=2.0)
        age = draw_zipf(as_uniform(mix(item, 28)), DISTINCT["product_age_group"], exponent=2.0)
        known = {
            "product_age_group": np.where(has_age, age, -1),
            "product_gender": np.where(has_gender, gender, -1),
            "product_brand": np.where(has_brand, brand, -1),
            "product_country": np.where(has_country, country, -1),
            "product_id": np.where(described, products, -1),
            "product_title": np.where(has_title, item, -1),
            "partner_id": partner,
        }
        for level in range(1, DEPTHS + 1):
            known[f"product_category({level})"] = np.where(has_category, category[level - 1], -1)
        return known
