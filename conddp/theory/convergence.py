r"""Convergence of Algorithm 1 for convex, strongly convex and nonconvex losses, with all constants.

The loss is a mean over records, and parameters act through :math:`W = \mathrm{diag}(C^\top, I)`. M bounds the gradient
norm of a record in the conditioned model, and :math:`\sigma` is the noise standard deviation of a step. Both come from
:mod:`conddp.theory.privacy`.
"""

import math

from conddp._validate import in_range, positive, positive_integer
from conddp.theory.bound import Bound

__all__ = ["bound_convex", "bound_nonconvex", "bound_strongly_convex"]


def bound_convex(gradient_bound: float, distance: float, *, noise: float, num_parameters: int, num_steps: int) -> Bound:
    r"""Bound the excess risk of the mean iterate for convex losses, at the optimal learning rate.

    .. math:: \mathbb{E} L(\bar\theta) - L^* \le N \sqrt{\frac{M^2 + d \sigma^2}{T}},
       \qquad \eta = \frac{N}{\sqrt{T (M^2 + d \sigma^2)}}

    Paper
        Theorem ``convergence_glm``, in the form of the last step of its proof before the constants of :math:`\sigma`
        are dropped. The mean is over :math:`\theta_0, \ldots, \theta_{T-1}`, as in the proof. Algorithm 1 prints
        :math:`\theta_1, \ldots, \theta_T`, for which the bound can fail.

    Parameters
    ----------
    gradient_bound : float
        M.
    distance : float
        N, the distance from the start to the optimum in the norm of :math:`(W W^\top)^{-1}`. It is the square root of
        the factor :math:`T_2`.
    noise : float
        :math:`\sigma`, the standard deviation of the noise on the mean gradient.
    num_parameters, num_steps : int
        d and T.
    """
    _check(gradient_bound, noise, num_parameters, num_steps)
    in_range(0.0, math.inf, distance=distance)
    optimisation = distance * gradient_bound / math.sqrt(num_steps)
    privacy = distance * noise * math.sqrt(num_parameters / num_steps)
    rate = distance / math.sqrt(num_steps * (gradient_bound**2 + num_parameters * noise**2))
    return Bound(
        math.hypot(optimisation, privacy),
        {"optimisation": optimisation, "privacy": privacy, "learning rate": rate},
        {"M": gradient_bound, "N": distance, "sigma": noise, "d": num_parameters, "T": num_steps},
        (
            "the loss is convex",
            "gradients of the mean loss have norm at most M",
            "the output is the mean of the iterates at which gradients were taken, the start included",
        ),
    )


def bound_strongly_convex(
    gradient_bound: float,
    *,
    smoothness: float,
    convexity: float,
    largest_scale: float,
    smallest_scale: float,
    noise: float,
    num_parameters: int,
    num_steps: int,
    other_blocks: bool = False,
) -> Bound:
    r"""Bound the excess risk of the mean iterate for smooth, strongly convex losses.

    .. math:: \mathbb{E} L(\bar\theta) - L^* \le \frac{16 \beta}{\mu^2}\, K\, \frac{M^2 + d\sigma^2}{T},
       \qquad K = \frac{\lambda_{\max}}{\lambda_{\min}^2}, \qquad \eta_t = \frac{1}{\mu\, t\, \lambda_{\min}}

    where :math:`\lambda` are the eigenvalues of :math:`W W^\top`: the squared singular values of C, and 1 if there are
    private or upper blocks.

    Paper
        Theorem ``convergence_strongly_convex``, corrected. Its statement has :math:`\beta^2` where the proof ends with
        :math:`\beta`, and a learning rate without :math:`\lambda_{\min}`. Its K is larger,
        :math:`(\sigma_{\max} / \sigma_{\min})^2 \max(\sigma_{\max}^2, \sigma_{\min}^{-2})`, because the base case of
        the proof measures the gradient in the wrong norm. M bounds the gradient in the norm of :math:`W W^\top`, which
        implies :math:`\|\nabla L\|^2 \le M^2 / \lambda_{\min}`.

    Parameters
    ----------
    gradient_bound : float
        M.
    smoothness, convexity : float
        :math:`\beta` and :math:`\mu` of the loss in unconditioned parameters.
    largest_scale, smallest_scale : float
        Largest and smallest singular value of C.
    noise : float
        :math:`\sigma`.
    num_parameters, num_steps : int
        d and T.
    other_blocks : bool
        Whether there are parameters that C does not act on.
    """
    _check(gradient_bound, noise, num_parameters, num_steps)
    positive(smoothness=smoothness, convexity=convexity, largest_scale=largest_scale, smallest_scale=smallest_scale)
    low, high = smallest_scale**2, largest_scale**2
    if other_blocks:
        low, high = min(low, 1.0), max(high, 1.0)
    constant = high / low**2
    printed_constant = (largest_scale / smallest_scale) ** 2 * max(largest_scale**2, smallest_scale**-2)
    common = 16 * (gradient_bound**2 + num_parameters * noise**2) / (convexity**2 * num_steps)
    return Bound(
        smoothness * constant * common,
        {
            "optimisation": 16 * smoothness * constant * gradient_bound**2 / (convexity**2 * num_steps),
            "privacy": 16 * smoothness * constant * num_parameters * noise**2 / (convexity**2 * num_steps),
            "K": constant,
            "first learning rate": 1 / (convexity * low),
        },
        {
            "M": gradient_bound,
            "beta": smoothness,
            "mu": convexity,
            "sigma_max(C)": largest_scale,
            "sigma_min(C)": smallest_scale,
            "sigma": noise,
            "d": num_parameters,
            "T": num_steps,
        },
        (
            "the loss is beta-smooth and mu-strongly convex",
            "gradients of the mean loss have norm at most M along the run",
            "the output is the mean of the iterates at which gradients were taken, the start included",
        ),
        smoothness**2 * printed_constant * common,
    )


def bound_nonconvex(
    gradient_bound: float, drop: float, *, smoothness: float, noise: float, num_parameters: int, num_steps: int
) -> Bound:
    r"""Bound the mean squared gradient norm over the run for smooth losses, in the norm of :math:`W W^\top`.

    .. math:: \frac1T \sum_t \mathbb{E} \|\nabla L(W \theta_t)\|^2_{W W^\top} \le
       \frac{\beta_0 (L_0 - L^*)}{\sqrt{T}} + \frac{M^2 + d \sigma^2}{2 \sqrt{T}},
       \qquad \eta = \frac{1}{\beta_0 \sqrt{T}}

    If :math:`\sigma^2` is proportional to T, the last term grows like :math:`\sqrt{T}`, so more steps do not always
    help.

    Paper
        Theorem ``convergence_non_convex``, corrected. The paper prints the Euclidean norm of the gradient, and a last
        term that decreases with T. The descent lemma takes the Euclidean inner product of the gradient and the step,
        which leaves :math:`W W^\top` in the norm.

    Parameters
    ----------
    gradient_bound : float
        M.
    drop : float
        :math:`L_0 - L^*`.
    smoothness : float
        :math:`\beta_0`, the smoothness of the loss in conditioned parameters.
    noise : float
        :math:`\sigma`.
    num_parameters, num_steps : int
        d and T.
    """
    _check(gradient_bound, noise, num_parameters, num_steps)
    positive(smoothness=smoothness)
    in_range(0.0, math.inf, drop=drop)
    root = math.sqrt(num_steps)
    descent = smoothness * drop / root
    curvature = gradient_bound**2 / (2 * root)
    privacy = num_parameters * noise**2 / (2 * root)
    return Bound(
        descent + curvature + privacy,
        {"descent": descent, "curvature": curvature, "privacy": privacy, "learning rate": 1 / (smoothness * root)},
        {
            "M": gradient_bound,
            "L_0 - L*": drop,
            "beta_0": smoothness,
            "sigma": noise,
            "d": num_parameters,
            "T": num_steps,
        },
        ("the loss is beta_0-smooth in conditioned parameters", "gradients have norm at most M along the run"),
        descent + gradient_bound**2 * smoothness / (2 * root) + privacy / num_steps,
    )


def _check(gradient_bound: float, noise: float, num_parameters: int, num_steps: int) -> None:
    positive(gradient_bound=gradient_bound)
    in_range(0.0, math.inf, noise=noise)
    positive_integer(num_parameters=num_parameters, num_steps=num_steps)
