r"""The privacy theorem: a bound on the gradient norm of one record, and the noise that it requires."""

import math

from conddp._validate import in_range, positive, positive_integer
from conddp.privacy.accounting import calibrate_gaussian_mu
from conddp.privacy.budget import PrivacyBudget
from conddp.privacy.neighbouring import Neighbouring
from conddp.theory.bound import Bound

__all__ = ["bound_gradient", "calibrate_noise"]


def bound_gradient(
    longest_row: float,
    *,
    slope: float = 1.0,
    private_slope: float = 0.0,
    longest_private: float = 0.0,
    top_slope: float = 0.0,
) -> Bound:
    r"""Bound the gradient norm of one record in the conditioned model.

    .. math:: M^2 = G^2 \max_i \|C x_i\|^2 + \hat G^2 R^2 + \bar G^2

    Paper
        Theorem ``privacy``; the factor :math:`T_1`.

    Parameters
    ----------
    longest_row : float
        Exact value of :math:`\max_i \|C x_i\|`. The paper bounds it by one for its C, and by the largest singular value
        for C = I.
    slope, private_slope, top_slope : float
        G, :math:`\hat G` and :math:`\bar G`: bounds on the derivative of the loss with respect to the outputs of the
        public and private input layers, and with respect to the parameters above.
    longest_private : float
        R, a bound on the norm of private features.
    """
    in_range(0.0, math.inf, longest_row=longest_row, slope=slope, private_slope=private_slope)
    in_range(0.0, math.inf, longest_private=longest_private, top_slope=top_slope)
    terms = {
        "public layer": slope * longest_row,
        "private layer": private_slope * longest_private,
        "upper layers": top_slope,
    }
    return Bound(
        math.hypot(*terms.values()),
        terms,
        {"G": slope, "max |C x|": longest_row, "Ghat": private_slope, "R": longest_private, "Gbar": top_slope},
        ("derivatives of the loss are bounded by G, Ghat and Gbar", "private features have norm at most R"),
    )


def calibrate_noise(
    gradient_bound: float,
    num_steps: int,
    num_records: int,
    budget: PrivacyBudget,
    *,
    neighbouring: Neighbouring = Neighbouring.REPLACE,
) -> Bound:
    r"""Compute the standard deviation of the noise on the mean gradient that makes T full-batch steps private.

    .. math:: \sigma = \frac{2M\sqrt{T}}{n\,\mu(\varepsilon, \delta)}

    where :math:`\mu` is the parameter of the exact Gaussian mechanism. Under ZERO_OUT the factor 2 is 1.

    Paper
        Theorem ``privacy`` prints :math:`\sigma^2 = \tilde O(M^2 T / (n \varepsilon)^2)`. This omits the factor of two
        in the sensitivity that replacement requires, and the constant, which is 4.2 at epsilon 1 and delta 1e-6.

    Parameters
    ----------
    gradient_bound : float
        M.
    num_steps, num_records : int
        T and n.
    budget : PrivacyBudget
        Epsilon and delta.
    neighbouring : Neighbouring
        Neighbouring relation for the sensitivity.
    """
    positive(gradient_bound=gradient_bound)
    positive_integer(num_steps=num_steps, num_records=num_records)
    mu = calibrate_gaussian_mu(budget.epsilon, budget.delta)
    sensitivity = neighbouring.sensitivity(gradient_bound) / num_records
    return Bound(
        sensitivity * math.sqrt(num_steps) / mu,
        {"sensitivity of a step": sensitivity, "noise of one release at unit sensitivity": 1 / mu},
        {"M": gradient_bound, "T": num_steps, "n": num_records, "epsilon": budget.epsilon, "delta": budget.delta},
        ("full batches", f"neighbours by {neighbouring.value}", "no record's gradient is longer than M"),
        gradient_bound * math.sqrt(num_steps) / (num_records * budget.epsilon),
    )
