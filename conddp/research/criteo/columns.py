"""Columns of the Criteo Sponsored Search Conversion Log, as published and as converted."""

import pyarrow as pa

__all__ = [
    "CATEGORIES",
    "LABEL",
    "LARGEST_VALUE",
    "MISSING",
    "NUMBERS",
    "NUM_BINS",
    "RAW_COLUMNS",
    "ROW_GROUP",
    "SCHEMA",
]

LABEL = "value"
NUMBERS = ("time_delay_for_conversion", "nb_clicks_1week", "product_price")
CATEGORIES = (
    "product_age_group",
    "device_type",
    "audience_id",
    "product_gender",
    "product_brand",
    *(f"product_category({level})" for level in range(1, 8)),
    "product_country",
    "product_id",
    "product_title",
    "partner_id",
    "user_id",
)
RAW_COLUMNS = (
    "Sale",
    "SalesAmountInEuro",
    "time_delay_for_conversion",
    "click_timestamp",
    "nb_clicks_1week",
    "product_price",
    *CATEGORIES,
)

MISSING = "-1"  # in the published file
LARGEST_VALUE = 400.0  # euros; the paper clips larger sales to it
NUM_BINS = 4000  # of the paper
ROW_GROUP = 131_072  # rows of a row group, and of a piece of the simulation

SCHEMA = pa.schema(
    [
        (LABEL, pa.float64()),
        *((name, pa.float64()) for name in NUMBERS),
        *((name, pa.int32()) for name in CATEGORIES),
    ]
)
