"""Lock on private data that opens only after their cost has been recorded."""

from typing import Generic, NoReturn, TypeVar

from conddp.errors import PrivacyError
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.ledger import LedgerEntry, PrivacyLedger, Receipt

__all__ = ["Locked"]

ContentT = TypeVar("ContentT")


class Locked(Generic[ContentT]):
    """Private data that can be opened once, with a receipt from a ledger.

    Privacy
        An algorithm receives its records in this form. It cannot read them before the ledger entry has been written,
        because the receipt does not exist until then.

    Parameters
    ----------
    content : object
        The private data.
    price : PrivacyBudget
        Cost that must be recorded before the data can be opened.
    ledger : PrivacyLedger
        Ledger in which it must be recorded.
    """

    def __init__(self, content: ContentT, *, price: PrivacyBudget, ledger: PrivacyLedger) -> None:
        self.__content: ContentT | None = content
        self.__ledger = ledger
        self.price = price
        self.paid: LedgerEntry | None = None  # the entry that opened the lock

    def open(self, receipt: Receipt) -> ContentT:
        """Return the content.

        Raises
        ------
        PrivacyError
            If the receipt is for less than the price, of another ledger, or used, or the content was handed out.
        """
        if not isinstance(receipt, Receipt) or not self.__ledger.redeem(receipt):
            raise PrivacyError("private records can be opened only with an unused receipt of their own ledger.")
        if not receipt.entry.cost.covers(self.price):
            raise PrivacyError(f"private records cost {self.price}, but the ledger entry covers {receipt.entry.cost}.")
        content, self.__content = self.__content, None
        if content is None:
            raise PrivacyError("private records can be opened only once per fit.")
        self.paid = receipt.entry
        return content

    def __repr__(self) -> str:
        return f"Locked({self.price})"

    def __reduce__(self) -> NoReturn:
        raise PrivacyError("locked records cannot be copied or pickled.")
