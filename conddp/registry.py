"""Registries of algorithms and heads by name, used by the estimator, the command line, tests and tables."""

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from conddp._validate import one_of

__all__ = ["Registry"]

MemberT = TypeVar("MemberT")


class Registry(Mapping[str, MemberT], Generic[MemberT]):
    """Mapping from names to members of one kind, each with its default settings.

    Parameters
    ----------
    noun : str
        Name of the kind in error messages and signatures, such as "algorithm" or "head".
    kind : type
        Type that every member must be an instance of.

    Examples
    --------
    >>> units = Registry("unit", float)
    >>> units.add("one", 1.0)
    1.0
    >>> units.resolve("one"), units.resolve(2.0), list(units)
    (1.0, 2.0, ['one'])
    """

    def __init__(self, noun: str, kind: type[MemberT]) -> None:
        self.noun, self.kind = noun, kind
        self._members: dict[str, MemberT] = {}

    def add(self, name: str, member: MemberT) -> MemberT:
        """Register a member under a name. Adding the same class again replaces its settings.

        Names and class names that belong to another class are refused.
        """
        if not isinstance(member, self.kind):
            raise ValueError(f"{self.noun} '{name}' must be a {self.kind.__name__}, got {member!r}.")
        kind, known = type(member), self._members.get(name)
        if known is not None and type(known).__qualname__ != kind.__qualname__:
            raise ValueError(f"{self.noun} '{name}' is taken by {type(known).__name__}.")
        namesake = self.find_class(kind.__name__) or kind  # saved models name their classes
        if (namesake.__module__, namesake.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ValueError(
                f"there is another {self.noun} class {kind.__name__}, in {namesake.__module__}. Rename yours."
            )
        self._members[name] = member
        return member

    def resolve(self, value: Any) -> MemberT:
        """Return the member of this name, or the value itself if it is an instance."""
        if isinstance(value, str):
            one_of(self._members, **{self.noun: value})
            return self._members[value]
        if isinstance(value, type) or not isinstance(value, self.kind):
            listed = ", ".join(repr(name) for name in self._members)
            raise ValueError(f"{self.noun} must be one of {listed} or an instance, got {value!r}.")
        return value

    def find_class(self, class_name: str) -> type[MemberT] | None:
        """Return the class of this name among the members, or None."""
        return next((type(each) for each in self.values() if type(each).__name__ == class_name), None)

    def find_name(self, member: MemberT) -> str:
        """Return the name under which the class of a value is registered, or the name of the class if it is not."""
        kind = type(member)
        return next((name for name, each in self.items() if type(each) is kind), kind.__name__)

    def __getitem__(self, name: str) -> MemberT:
        return self._members[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)
