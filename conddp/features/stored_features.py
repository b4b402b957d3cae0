"""Public features of a stored table: columns that are read and encoded block by block."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from conddp.data.parts import LARGEST_DENSE, Matrix, PublicFeatures, SparseMatrix
from conddp.data.passes import BLOCK_SIZE
from conddp.data.public_table import PublicTable
from conddp.data.stored_column import ROWS_AT_ONCE, StoredColumn
from conddp.data.stored_table import StoredTable
from conddp.errors import SchemaError
from conddp.features.encoding import Encoding

__all__ = ["StoredFeatures"]

CELLS_AT_ONCE = 1 << 22  # features of a block that are kept in memory


class StoredFeatures(PublicFeatures):
    """Public features that are read from files, and encoded, when they are sliced.

    Privacy
        Reads public columns only: no cost.

    Parameters
    ----------
    table : StoredTable
        The table.
    encoding : Encoding
        Encoding of its public columns.
    sparsely : bool
        Whether blocks are CSR matrices rather than arrays.
    digest : bytes
        Digest of all public cells, in order.
    """

    column: "_FeatureColumn"
    derived: dict[Any, Any]  # what was computed from these features, so that it is computed once

    def __init__(self, table: StoredTable, encoding: Encoding, *, sparsely: bool, digest: bytes) -> None:
        self.names, self.groups = encoding.features, encoding.find_groups()
        self.sparsely, self.digest = sparsely, digest
        fitting = CELLS_AT_ONCE // max(1, len(self.names)) // BLOCK_SIZE * BLOCK_SIZE
        rows = ROWS_AT_ONCE if sparsely else min(ROWS_AT_ONCE, max(BLOCK_SIZE, fitting))
        self.column = _FeatureColumn(table, encoding.names, rows, encoding=encoding, sparsely=sparsely)
        self.num_codes, self.derived = encoding.num_codes, {}

    @property
    def partitions(self) -> tuple[slice, ...]:
        """Partitions of the table."""
        return self.column.partitions

    @property
    def matrix(self) -> Matrix | SparseMatrix:
        """All features as an array, if they fit into memory."""
        return self.values

    @property
    def sparse(self) -> None:
        """Return None: blocks may be sparse, the whole is not kept."""
        return None

    @property
    def values(self) -> Matrix:
        """All features as an array.

        Raises
        ------
        SchemaError
            If there are more than 2**28 cells.
        """
        self.check_dense()
        return self.get_block(slice(None))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of records n and of features d."""
        return len(self.column), len(self.names)

    def read(self, span: slice) -> Matrix | SparseMatrix:
        """Read a block of records, as an array or as a CSR matrix."""
        block: Matrix | SparseMatrix = self.column[span]
        return block

    def get_block(self, span: slice) -> Matrix:
        """Read a block of records as an array."""
        block = self.read(span)
        return block.toarray() if isinstance(block, csr_array) else block

    def load(self) -> PublicFeatures:
        """Read all features into memory.

        Raises
        ------
        SchemaError
            If there are more than 2**28 cells; of sparse features, more than 2**28 that are not zero in a record of
            average density.
        """
        if not self.sparsely:
            return PublicFeatures(self.values, self.names, self.groups, num_codes=self.num_codes)
        some = self.read(slice(0, min(len(self), self.column.rows_at_once)))
        assert isinstance(some, csr_array)
        if some.nnz / some.shape[0] * len(self) > LARGEST_DENSE:
            raise self._refuse(some.nnz // some.shape[0])
        return self[:]

    def check_dense(self) -> None:
        """Raise a :class:`SchemaError` if the features are too many to be kept in memory."""
        n, d = self.shape
        if n * d > LARGEST_DENSE:
            raise self._refuse(d)

    def _refuse(self, per_record: int) -> SchemaError:
        """Error for features of which so many per record would have to be in memory."""
        n, d = self.shape
        return SchemaError(
            f"the table gives {n:,} x {d:,} features, and this algorithm or head needs all of them in memory: "
            f"{8 * n * per_record / 1e9:,.0f} GB, where {8 * LARGEST_DENSE / 1e9:,.1f} GB are allowed. Use CondNewton "
            "(the default) with a linear head, or CondDP or DPSGD with up to 2,000 features, or fewer rows."
        )

    def __getitem__(self, index: Any) -> PublicFeatures:
        """Read records by slice or by positions into memory."""
        block = self.read(index) if isinstance(index, slice) else self.matrix[index]
        return PublicFeatures(block, self.names, self.groups, num_codes=self.num_codes)


@dataclass(frozen=True, eq=False)
class _FeatureColumn(StoredColumn):
    """Encoded public columns."""

    encoding: Encoding = Encoding(())
    sparsely: bool = False

    def convert(self, piece: Any) -> NDArray[np.float64] | SparseMatrix:
        if not self.sparsely:
            plain = self.encoding.join_numbers(piece)
            if plain is not None:
                return plain
        table = PublicTable.of(piece, self.encoding.names, kinds=self.encoding.kinds)
        features = self.encoding.transform(table, as_part=self.sparsely).matrix
        return features if isinstance(features, csr_array) else features.astype(np.float64, copy=False)
