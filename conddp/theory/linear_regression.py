r"""Private linear regression: the exact optimum, and the improvement of the bound by conditioning.

With :math:`X = U S V^\top` and no private features, the optimum is :math:`\theta^* = V S^{-1} \hat y`,
:math:`\hat y = U^\top y`. The bound of the convex theorem is a common factor times :math:`T_1 \sqrt{T_2}` with

.. math:: T_1(C) = \max_i \|C^\top x_i\|, \qquad \sqrt{T_2(C)} = \|C^{-1} \theta^*\|

for a start at zero. The improvement by C is the ratio of :math:`T_1 \sqrt{T_2}` for I to that for C. As everywhere in
the code, training uses :math:`C^\top x`; the paper writes :math:`C x`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from conddp.data.parts import PublicFeatures
from conddp.errors import SchemaError
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.spectrum import Spectrum

__all__ = ["Improvement", "Optimum", "compute_factors", "compute_improvement", "solve_optimum"]

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Optimum:
    """Least-squares solution on public and private features.

    Parameters
    ----------
    public, private : arrays
        Coefficients of the public and private features.
    projected_label : array of shape (rank,)
        y-hat, the coefficients of the left singular vectors of the public features.
    printed_public, printed_projected_label : arrays
        Same by the paper's formula, which omits a term if there are private features.
    """

    public: Vector
    private: Vector
    projected_label: Vector
    printed_public: Vector
    printed_projected_label: Vector


def solve_optimum(public: Vector, label: Vector, private: Vector | None = None) -> Optimum:
    r"""Solve least squares in closed form, separately for the public and the private features.

    .. math:: \theta_{priv} = \big[Q^\top P Q\big]^{-1} Q^\top P y, \qquad
       \theta_{pub} = V S^{-1} \hat y, \qquad \hat y = U^\top (y - Q \theta_{priv}), \qquad P = I - U U^\top

    Paper
        Lemma ``lin_reg_optimum`` and the :math:`\hat y` of Lemma ``improvement_C_lin_reg``, corrected: the proof
        computes :math:`B Q^\top y` and then omits it.

    Privacy
        Not private. Use it for research and for tests on simulated labels only.

    Parameters
    ----------
    public : array of shape (n, d)
        Public features, of full column rank.
    label : array of shape (n,)
        Labels.
    private : array of shape (n, q), optional
        Private features Q.
    """
    n, d = public.shape
    U, S, Vt = np.linalg.svd(np.asarray(public, dtype=np.float64), full_matrices=False)
    if not 0 < d <= n or S[-1] <= 1e-12 * S[0]:
        raise SchemaError("the public features do not have full rank, so the optimum is not unique.")
    along = U.T @ label
    if private is None or private.shape[1] == 0:
        theta = Vt.T @ (along / S)
        return Optimum(theta, np.empty(0), along, theta, along)
    residual = private - U @ (U.T @ private)
    schur = residual.T @ residual
    if np.linalg.eigvalsh(schur)[0] <= 1e-12 * np.linalg.norm(private.T @ private, 2):
        raise SchemaError("private features are collinear with other features, so the optimum is not unique.")
    theta_private = np.asarray(np.linalg.solve(schur, residual.T @ label), dtype=np.float64)
    projected = U.T @ (label - private @ theta_private)
    shared = U.T @ private
    printed = along + shared @ np.linalg.solve(schur, shared.T @ along)
    return Optimum(Vt.T @ (projected / S), theta_private, projected, Vt.T @ (printed / S), printed)


def compute_factors(
    public_features: PublicFeatures, conditioning: ConditioningMatrix, optimum: Vector, start: Vector | None = None
) -> tuple[float, float]:
    r"""Compute the factors of the bound that depend on C: the longest conditioned row and the distance to the optimum.

    Paper
        :math:`T_1` (for G = 1) and the square root of :math:`T_2` after Theorem ``convergence_non_convex``.

    Parameters
    ----------
    public_features : PublicFeatures
        Public feature rows, shape (n, d).
    conditioning : ConditioningMatrix
        C.
    optimum : array of shape (d,)
        Coefficients of the features, and of the constant column if C has one.
    start : array of shape (k,), optional
        Initial conditioned parameters; zero if None.
    """
    rows = conditioning.transform(public_features)
    distance = conditioning.unfold(optimum) - (0.0 if start is None else start)
    return float(np.sqrt((rows**2).sum(axis=1).max())), float(np.linalg.norm(distance))


@dataclass(frozen=True)
class Improvement:
    r"""Factor by which conditioning reduces the bound for linear regression, compared with raw features.

    Parameters
    ----------
    best, worst : float
        Extremes over all labels by the paper's formula: the condition number, and one.
    exact_best, exact_worst : float
        Extremes over all labels, with exact row norms instead of their bounds by singular values.
    actual, exact_actual : float, optional
        Factors for given labels; not private.
    """

    best: float
    worst: float
    exact_best: float
    exact_worst: float
    actual: float | None = None
    exact_actual: float | None = None

    def describe(self) -> str:
        """Describe the improvement in a sentence."""
        low, high = self.exact_worst, self.exact_best
        if high < 1.5:
            return (
                f"Conditioning changes the bound on the error by a factor between {low:.3g} and {high:.3g}: the public "
                "columns are nearly conditioned as they are."
            )
        worst = f"shrinks it {low:.3g} times" if low >= 1 else f"makes it {1 / low:.3g} times larger"
        return (
            f"In theory conditioning shrinks the bound on the error of noisy descent {high:.3g} times for labels along "
            f"the weakest direction of the columns as they are, and {worst} for labels along the strongest; most "
            "labels lie in between."
        )


def compute_improvement(
    public_features: PublicFeatures,
    *,
    conditioning: ConditioningMatrix | None = None,
    label: Vector | None = None,
    constant: bool = False,
) -> Improvement:
    r"""Compute the improvement factor of conditioning, for a start at zero.

    .. math:: \sqrt{\frac{\sum_j (\hat y_j\, \sigma_{\max} / \sigma_j)^2}{\sum_j \hat y_j^2}}
       \qquad\text{or exactly}\qquad
       \frac{\max_i \|x_i\| \cdot \|S^{-1} \hat y\|}{\max_i \|C^\top x_i\| \cdot \|C^{-1} V S^{-1} \hat y\|}

    Paper
        The comparison after Lemma ``improvement_C_lin_reg`` bounds the longest row by the largest singular value, and
        the longest conditioned row by one. Exact norms are public and give a different factor, which can be below one.

    Privacy
        Without ``label``, reads public columns only: no cost. With ``label``, the result is not private.

    Parameters
    ----------
    public_features : PublicFeatures
        Public feature rows, shape (n, d).
    conditioning : ConditioningMatrix, optional
        C; the paper's matrix if None. The paper's formula holds for that matrix only.
    label : array of shape (n,), optional
        Labels that need no protection.
    constant : bool
        Whether to add a constant column. The paper has none.
    """
    spectrum = Spectrum.of(public_features, constant=constant)
    S, V = spectrum.singular_values, spectrum.right_vectors
    C = ConditioningMatrix.from_spectrum(spectrum) if conditioning is None else conditioning
    plain = ConditioningMatrix.identity(spectrum)
    lengths = [each.compute_norms(public_features).max() for each in (plain, C)]
    inverse = C.inverse @ V / S  # maps projected labels to conditioned parameters
    extremes = np.linalg.svd(np.linalg.pinv(inverse) / S[:, None], compute_uv=False)
    rows = lengths[0] / lengths[1]
    actual = exact_actual = None
    if label is not None:
        X = public_features.values.astype(np.float64)
        X = np.column_stack([X, np.ones(len(X))]) if constant else X
        along = (X @ (V / S)).T @ label
        actual = float(np.linalg.norm(along * S[0] / S) / np.linalg.norm(along))
        exact_actual = float(rows * np.linalg.norm(along / S) / np.linalg.norm(inverse @ along))
    return Improvement(
        float(S[0] / S[-1]),
        1.0,
        float(rows * extremes[0]),
        float(rows * extremes[-1]),
        actual,
        exact_actual,
    )
