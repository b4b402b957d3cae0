"""Private data that are handed out only after their price has been recorded."""

from typing import Generic, NoReturn, TypeVar

from conddp.errors import PrivacyError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import PrivacyLedger, Receipt

__all__ = ["Locked"]

ContentT = TypeVar("ContentT")


class Locked(Generic[ContentT]):
    """Something private, to be opened once, with the receipt of a ledger.

    Privacy
        An algorithm is given its records in this form. It cannot read them before the ledger has been written, because
        the receipt does not exist before.

    Parameters
    ----------
    content : object
        What is private.
    price : PrivacyBudget
        What must have been recorded.
    ledger : PrivacyLedger
        Where.
    """

    def __init__(self, content: ContentT, *, price: PrivacyBudget, ledger: PrivacyLedger) -> None:
        self.__content: ContentT | None = content
        self.__ledger = ledger
        self.price = price

    def open(self, receipt: Receipt) -> ContentT:
        """The content.

        Raises
        ------
        PrivacyError
            If the receipt is for less than the price, of another ledger, or used, or the content was handed out.
        """
        if not isinstance(receipt, Receipt) or not self.__ledger.redeem(receipt):
            raise PrivacyError("private records open with a fresh receipt of their own ledger only.")
        if not receipt.entry.cost.covers(self.price):
            raise PrivacyError(f"private records cost {self.price}, but the entry is for {receipt.entry.cost}.")
        content, self.__content = self.__content, None
        if content is None:
            raise PrivacyError("private records are handed out once for each fit.")
        return content

    def __repr__(self) -> str:
        return f"Locked({self.price})"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("locked records cannot be copied or pickled.")
