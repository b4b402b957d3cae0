"""Draft of a schema: what has been decided on the columns of a table, and what the user still has to decide."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from conddp.bounds import Bounds
from conddp.data.column import Column, Kind, Role
from conddp.data.toml import quote, render_bounds, render_private
from conddp.errors import SchemaError

__all__ = ["SchemaDraft"]

INTRODUCTION = """\
# What may be known of each column. Decide on every column under [undecided]: move its name to [public] or [dropped], or
# give it a table [private.NAME]. Nothing is fitted while a column is undecided. Then: conddp fit.
#
# Types come from the file. Nothing else was read: declare ranges and categories from what you know of them, never from
# the data.
"""
LABEL_BOUNDS = """\
# The range that the label can have. Values outside are clamped.
"""
MISSING = """\
# If everyone may know which labels are missing, records without a label can be dropped:
# missing = "public"
"""
KINDS = """\
# The kind of a public column, if its type does not tell: "number", "category", "boolean" or "date".
"""
PRIVATE = """\
# A feature to protect: a table with its range or its categories, and with fill if it can have gaps.
# [private.income]
# bounds = [0, 200000]
# fill = 30000
#
# [private.region]
# categories = ["north", "south", "west"]
"""
UNIT = """\
# If a person can have several records: a public column, of any type, that says whose each record is.
"""


@dataclass(frozen=True)
class SchemaDraft:
    """A schema in the making. Columns on which nothing was decided are listed as undecided.

    Privacy
        Holds names, types and declarations of the user. Nothing suggests a role or a range: these must not come from
        the data.

    Parameters
    ----------
    types : mapping
        Types of all columns, in words, as :func:`~conddp.data.readers.read_column_types` returns them.
    label : str, optional
        The column to predict.
    label_bounds : (low, high), optional
        Its declared range.
    public : tuple of str
        Public features.
    kinds : mapping
        Kinds of public features whose type does not tell.
    private : mapping
        Declared ranges or categories of private features, as in :meth:`Schema.of <conddp.data.schema.Schema.of>`.
    dropped : tuple of str
        Columns that are not used.
    unit : str, optional
        Public column that says whose each record is.

    Raises
    ------
    SchemaError
        If a column is not in the table or has two roles, or if a declaration is wrong.

    Examples
    --------
    >>> draft = SchemaDraft({"rooms": "whole number", "town": "text", "price": "number"}, "price", public=("rooms",))
    >>> draft.undecided
    ('town',)
    """

    types: Mapping[str, str]
    label: str | None = None
    label_bounds: object = None
    public: tuple[str, ...] = ()
    kinds: Mapping[str, object] = field(default_factory=dict)
    private: Mapping[str, object] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    unit: str | None = None

    def __post_init__(self) -> None:
        roles: dict[str, str] = {}
        named = [(name, role) for role, names in self._list_roles() for name in names]
        for name, role in named:
            if name not in self.types:
                raise SchemaError(f"{role} '{name}' is not among the {len(self.types)} columns.")
            if name in roles:
                twice = "twice" if roles[name] == role else f"as {roles[name]} and as {role}"
                raise SchemaError(f"column '{name}' is named {twice}. Give each column one role.")
            roles[name] = role
        for name, kind in self.kinds.items():
            if name not in self.public:
                raise SchemaError(f"column '{name}' has a kind but is not public. Kinds are for public columns.")
            Kind.of(kind, column=name)
        if self.label_bounds is not None:
            Bounds.of(self.label_bounds, column=self.label or "label")
        for name, declared in self.private.items():
            Column.private(name, declared)

    def _list_roles(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        yield "label", () if self.label is None else (self.label,)
        yield "public column", self.public
        yield "private column", tuple(self.private)
        yield "dropped column", self.dropped
        yield "unit column", () if self.unit is None else (self.unit,)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Columns that have no role yet, in the order of the table."""
        decided = {name for _, names in self._list_roles() for name in names}
        return tuple(name for name in self.types if name not in decided)

    @property
    def is_complete(self) -> bool:
        """Whether the draft is a schema: every column has a role, and the label has its range."""
        return self.label is not None and self.label_bounds is not None and not self.undecided

    def to_toml(self) -> str:
        """Return TOML text with comments, for the user to edit. If the draft is complete, it is a schema."""
        return "\n".join(self._render())

    def _render(self) -> Iterator[str]:
        label, bounds = self.label or "WHICH COLUMN IS PREDICTED?", "[]  # [low, high]"
        if self.label_bounds is not None:
            bounds = render_bounds(Column(label, Role.LABEL, Bounds.of(self.label_bounds, column=label)))
        yield INTRODUCTION
        yield "[label]  # always private"
        yield f"name = {quote(label)}{self._remark(label)}"
        yield f"{LABEL_BOUNDS}bounds = {bounds}"
        yield MISSING
        if self.undecided:
            yield "[undecided]  # only you can say what everyone may know"
            yield from self._render_names(self.undecided)
            yield ""
        yield "[public]  # everyone may know these of every record: they are used at no privacy cost"
        yield from self._render_names(self.public)
        kinds = ", ".join(f"{quote(name)} = {quote(str(_word(kind)))}" for name, kind in self.kinds.items())
        yield KINDS + (f"kinds = {{{kinds}}}" if kinds else '# kinds = {zip_code = "category"}') + "\n"
        yield PRIVATE
        for name, declared in self.private.items():
            yield "\n".join(render_private(Column.private(name, declared))) + "\n"
        yield "[dropped]  # not used, and not read"
        yield from self._render_names(self.dropped)
        yield ""
        yield UNIT + (f"[unit]\ncolumn = {quote(self.unit)}\n" if self.unit else '# [unit]\n# column = "customer_id"\n')

    def _render_names(self, names: tuple[str, ...]) -> Iterator[str]:
        if not names:
            yield "columns = []"
            return
        yield "columns = ["
        for name in names:
            yield f"  {quote(name)},{self._remark(name)}"
        yield "]"

    def _remark(self, name: str) -> str:
        return f"  # {self.types[name]}" if name in self.types else ""


def _word(kind: object) -> object:
    return kind.value if isinstance(kind, Kind) else kind
