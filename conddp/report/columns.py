"""Sections about columns: their roles, and what the public ones look like."""

import numpy as np

from conddp.categories import Categories
from conddp.data.column import Column, Kind, Role
from conddp.data.schema import Schema
from conddp.features.encoding import Encoding
from conddp.report.document import (
    Block,
    Chart,
    Facts,
    Section,
    Series,
    Table,
    Text,
    join,
)
from conddp.theory.design import Design

__all__ = ["describe_columns", "describe_design", "describe_public", "list_protected"]

MOST_NAMED = 12  # columns in a sentence


def describe_columns(schema: Schema) -> Section:
    """Roles and declared ranges of columns, for a plan."""
    public = (
        f"Public columns, taken to be known to everyone: {join(schema.public, most=40)}. "
        "The number of records and the declared ranges are public too."
        if schema.public
        else "No column is public. The number of records and the declared ranges are."
    )
    return Section("What is public and what is not", (list_protected(schema), Text(public), *_list_about_unit(schema)))


def list_protected(schema: Schema) -> Table:
    """Protected columns with what is declared of them."""
    roles = {Role.LABEL: "the label, private", Role.PRIVATE: "private", Role.PUBLIC: "public"}
    protected = tuple(
        (column.name, roles[column.role], _describe_domain(column))
        for column in schema.columns
        if column.role is not Role.PUBLIC
    )
    declared = "declared range or categories" if schema.category_columns else "declared range"
    return Table("Protected columns", ("column", "role", declared), protected, num_text=3)


def describe_public(schema: Schema, exposed: str, encoding: Encoding | None = None) -> Section:
    """What is not protected, and how public columns are encoded.

    Parameters
    ----------
    schema : Schema
        The columns.
    exposed : str
        What the guarantee does not cover.
    encoding : Encoding, optional
        Encoding of the public columns. If None, the columns are the features.
    """
    names = f"All public columns: {join(schema.public, most=100)}."
    return Section(
        "What remains public",
        (
            Text(f"{exposed}. The guarantee takes all of this to be known to everyone and does not protect it."),
            *((Text(names),) if len(schema.public) > MOST_NAMED else ()),
            *_list_about_unit(schema),
            *(() if encoding is None or encoding.is_plain else (_describe_encoding(encoding),)),
        ),
    )


def _list_about_unit(schema: Schema) -> tuple[Text, ...]:
    return () if schema.unit is None else (Text(_describe_unit(schema)),)


def _describe_domain(column: Column) -> str:
    domain = column.domain
    if isinstance(domain, Categories):
        return join(domain.names, most=40)
    if column.kind is Kind.DATE:
        low, high = (np.datetime64(int(day), "D") for day in (domain.low, domain.high))
        return f"{low} to {high}"
    return f"{domain.low:g} to {domain.high:g}"


def _describe_encoding(encoding: Encoding) -> Table:
    rows = tuple((each.column, each.kind.value, f"{len(each.features):,}", each.remark) for each in encoding.columns)
    heads = ("column", "kind", "features", "what was done")
    return Table("How public columns became features", heads, rows, num_text=4)


def _describe_unit(schema: Schema) -> str:
    used = f" At most {schema.max_rows} of them are used." if schema.max_rows is not None else ""
    return f"Records with the same value of '{schema.unit}', which is public, are protected together.{used}"


def describe_design(design: Design) -> Section:
    """Facts about the public columns, remarks on them, and their spectrum."""
    blocks: list[Block] = [
        Facts(
            (
                ("records", f"{design.num_records:,}"),
                ("public columns", f"{len(design.columns)}"),
                ("directions with information", f"{design.rank} of {design.num_parameters} (with the constant)"),
                ("records per direction", f"{design.num_records / design.rank:,.0f}"),
                ("effective rank", f"{design.effective_rank:.3g}"),
                ("condition number", f"{design.condition_number:.3g}"),
                ("condition number, columns scaled", f"{design.scaled_condition_number:.3g}"),
                ("largest leverage", f"{design.largest_leverage:.3g}"),
                ("mean leverage", f"{design.mean_leverage:.3g}"),
                (
                    "improvement factor, best and worst labels",
                    f"{design.improvement.exact_best:.3g} and {design.improvement.exact_worst:.3g}",
                ),
            )
        )
    ]
    blocks += [Text(remark) for remark in (design.improvement.describe(), *design.list_remarks())]
    values = design.scaled_singular_values
    if len(values) > 1:
        blocks.append(
            Chart(
                "Spectrum of the public columns, centred and scaled",
                "direction",
                "singular value over the root of n",
                tuple(float(place) for place in range(1, len(values) + 1)),
                (Series("singular value", values),),
                log_y=values[0] > 4 * values[-1],
            )
        )
    return Section("The public columns", tuple(blocks))
