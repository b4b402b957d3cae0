from typing import Any

import numpy as np
import pytest
import torch

from conddp.heads.head import Head, Inputs, Trace
from conddp.heads.linear import Linear
from conddp.heads.mlp import MLP
from conddp.privacy.bounded_sum import bound_rounding
from conddp.privacy.noise import NoiseStream, gaussian
from conddp.privacy.release import Curator
from conddp.training.clipping import Workspace, compute_clipped_sum
from conddp.training.loop import Progress, TrainingPlan, train
from conddp.training.optimizers import SGD, Adam
from tests.contracts import CODED_HEADS
from tests.contracts import HEADS as PLAIN_HEADS

HEADS = {**PLAIN_HEADS, **CODED_HEADS}


def records(rng: np.random.Generator, n: int = 60) -> tuple[Inputs, Any]:
    inputs = Inputs.of(rng.normal(size=(n, 3)), rng.uniform(-1, 1, size=(n, 2)))
    return inputs, rng.uniform(-0.5, 0.5, size=n)


def rows_of(inputs: Inputs) -> Any:
    return np.hstack([inputs.public, np.asarray(inputs.private)])


def run(
    plan: TrainingPlan,
    head: Head,
    inputs: Inputs,
    label: Any,
    parameters: Any,
    rate: Any,
    seeds: list[int] | None,
    **more: Any,
) -> Any:
    """A run whose noise has these seeds; without noise if there are none."""
    generators = None if seeds is None else [np.random.default_rng(seed) for seed in seeds]
    return train(
        plan,
        head,
        head.layout(3, 2),
        inputs,
        label,
        parameters,
        optimizer=more.pop("optimizer", None) or Adam(rate),
        curator=None if generators is None else Curator(generators, num_records=label.shape[0]),
        rng=np.random.default_rng(99),
        **more,
    )


@pytest.mark.parametrize("seeds", [[1, 2, 3], None], ids=["noise", "no noise"])
@pytest.mark.parametrize("probability", [1.0, 0.2])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_k_configurations_at_once_equal_k_runs_of_one(
    rng: np.random.Generator, head: Head, probability: float, seeds: list[int] | None
) -> None:
    inputs, label = records(rng)
    clips, noises, rates = [0.1, 1.0, 3.0], [2.0, 0.5, 1e-9], [0.01, 0.05, 0.1]
    start = 0.3 * rng.normal(size=(3, head.layout(3, 2).size))
    together = run(TrainingPlan(10, clips, noises, probability, 0.5), head, inputs, label, start, rates, seeds)
    for k in range(3):
        plan = TrainingPlan(10, clips[k], noises[k], probability, 0.5)
        alone = run(plan, head, inputs, label, start[k : k + 1], rates[k], seeds and seeds[k : k + 1])
        assert np.allclose(alone[0], together[k], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("probability", [1.0, 0.2])
@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_torch_tensors_give_what_numpy_arrays_give(rng: np.random.Generator, head: Head, probability: float) -> None:
    inputs, label = records(rng)
    start = 0.3 * rng.normal(size=(2, head.layout(3, 2).size))
    plan = TrainingPlan(8, 0.5, 1.0, probability, 0.5)
    by_numpy = run(plan, head, inputs, label, start, 0.05, [1, 2])
    tensors = Inputs.of(torch.from_numpy(inputs.public), torch.from_numpy(inputs.private))
    by_torch = run(plan, head, tensors, torch.from_numpy(label), torch.from_numpy(start), 0.05, [1, 2])
    assert isinstance(by_torch, torch.Tensor)
    assert np.allclose(by_numpy, by_torch.numpy(), rtol=1e-9, atol=1e-10)


def test_one_full_batch_step_is_the_stated_formula(rng: np.random.Generator) -> None:
    inputs, label = records(rng)
    head = Linear()
    start = rng.normal(size=(1, 5))
    rows = rows_of(inputs)
    gradients = (rows @ start[0] - label)[:, None] * rows
    clipped = gradients * np.minimum(1, 0.7 / np.linalg.norm(gradients, axis=1, keepdims=True))
    stream = NoiseStream(gaussian(), np.random.default_rng(4))
    noisy = stream.add(clipped.sum(axis=0), 3.0 * 0.7 * (1 + bound_rounding(60)))
    expected = start[0] - 0.1 * noisy / len(label)
    found = run(TrainingPlan(1, 0.7, 3.0), head, inputs, label, start, None, [4], optimizer=SGD(0.1))
    assert np.allclose(found[0], expected, rtol=1e-12)


def test_an_empty_sample_is_a_step_of_noise_divided_by_the_expected_size(rng: np.random.Generator) -> None:
    inputs, label = records(rng, n=10)
    start = np.zeros((1, 5))
    # With q = 1e-9 every sample is empty; the divisor stays n q.
    plan = TrainingPlan(1, 0.7, 3.0, sampling_probability=1e-9)
    found = run(plan, Linear(), inputs, label, start, None, [4], optimizer=SGD(1e-9))
    noise = NoiseStream(gaussian(), np.random.default_rng(4)).add(np.zeros(5), 3.0 * 0.7 * (1 + bound_rounding(10)))
    assert np.allclose(found[0], -1e-9 * noise / (10 * 1e-9), rtol=1e-12)


def test_the_realised_size_of_a_sample_never_enters(rng: np.random.Generator) -> None:
    inputs, label = records(rng, n=200)
    sizes, steps = [], []
    for seed in range(20):
        generator = np.random.default_rng(seed)
        from conddp.training.sampling import PoissonSampler

        drawn = PoissonSampler(200, 0.1, np.random.default_rng(seed)).draw()
        plan = TrainingPlan(1, 1e9, 0.0, 0.1)
        head = Linear()
        found = train(
            plan,
            head,
            head.layout(3, 2),
            inputs,
            label,
            np.zeros((1, 5)),
            optimizer=SGD(1.0),
            curator=None,
            rng=generator,
        )
        rows = rows_of(inputs)[drawn]
        assert np.allclose(found[0], rows.T @ label[drawn] / 20, rtol=1e-9, atol=1e-12)
        sizes.append(len(drawn))
        steps.append(found)
    assert len(set(sizes)) > 3


@pytest.mark.parametrize(("averaging", "first"), [(0.0, 9), (1.0, 0), (0.5, 5), (0.31, 7)])
def test_the_output_is_the_mean_of_the_stated_tail(rng: np.random.Generator, averaging: float, first: int) -> None:
    inputs, label = records(rng)
    iterates: list[Any] = []

    def keep(progress: Progress) -> None:
        iterates.append(progress.parameters.copy())

    plan = TrainingPlan(10, 0.5, 1.0, averaging=averaging)
    found = run(plan, Linear(), inputs, label, np.zeros((1, 5)), 0.1, [1], callback=keep)
    assert len(iterates) == 10
    assert np.allclose(found, np.mean(iterates[first:], axis=0), rtol=1e-12)


def test_a_callback_sees_released_quantities_only_and_can_stop(rng: np.random.Generator) -> None:
    inputs, label = records(rng)
    seen: list[int] = []

    def stop(progress: Progress) -> bool:
        assert set(vars(progress)) == {"step", "num_steps", "parameters"}
        seen.append(progress.step)
        return progress.step == 3

    run(TrainingPlan(10, 0.5, 1.0, averaging=0.5), Linear(), inputs, label, np.zeros((1, 5)), 0.1, [1], callback=stop)
    assert seen == [1, 2, 3]


def test_start_parameters_are_not_changed(rng: np.random.Generator) -> None:
    inputs, label = records(rng)
    start = np.ones((1, 5))
    run(TrainingPlan(3, 0.5, 1.0), Linear(), inputs, label, start, 0.1, [1])
    assert (start == 1).all()


def test_a_diverging_run_stays_finite(rng: np.random.Generator) -> None:
    inputs, label = records(rng)
    head = MLP(hidden=(5, 4))
    start = rng.normal(size=(1, head.layout(3, 2).size))
    found = run(TrainingPlan(50, 10.0, 1.0), head, inputs, label, start, None, [1], optimizer=SGD(1e8))
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"num_steps": 0}, "num_steps must be a whole number"),
        ({"num_steps": 2.5}, "num_steps must be a whole number"),
        ({"clip_norm": 0.0}, "clip_norm must be above 0"),
        ({"clip_norm": float("inf")}, "clip_norm must be finite"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must lie between"),
        ({"sampling_probability": 0.0}, "sampling_probability must be above 0"),
        ({"averaging": 1.5}, "averaging must lie between"),
    ],
)
def test_impossible_plans_are_refused(plan: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingPlan(**{"num_steps": 1, "clip_norm": 1.0, "noise_multiplier": 1.0, **plan})


class _Reusing(Linear):
    """A head that writes the norms of every step into the same array. They grow with the first weight."""

    norms = np.empty(0)

    def forward(self, weights: Any, inputs: Inputs) -> Trace:
        trace = super().forward(weights, inputs)
        self.norms[:] = inputs.row_norms * (1 + abs(weights["public"][0, 0, 0]))
        trace.jacobian_norms = self.norms
        return trace


def test_limits_follow_norms_that_a_head_writes_into_the_same_array(rng: np.random.Generator) -> None:
    head, inputs, label = _Reusing(), Inputs.of(rng.normal(size=(50, 3))), rng.normal(size=50)
    object.__setattr__(head, "norms", np.empty(50))
    layout, clip_norm, parameters = head.layout(3, 0), np.array([0.1]), np.zeros((1, 3))
    workspace = Workspace.of(head, layout, parameters)
    for first in (0.0, 3.0):
        parameters[0, 0] = first
        found = compute_clipped_sum(workspace, inputs, label, clip_norm=clip_norm).copy()
        fresh = Workspace.of(head, layout, parameters)
        assert np.array_equal(found, compute_clipped_sum(fresh, inputs, label, clip_norm=clip_norm))


def test_limits_follow_a_clip_norm_that_changes_in_place() -> None:
    inputs, label, clip_norm = Inputs.of(np.ones((4, 3))), np.full(4, 9.0), np.ones(1)
    workspace = Workspace.of(Linear(), Linear().layout(3, 0), np.zeros((1, 3)))
    for expected in (4.0, 0.4):
        found = compute_clipped_sum(workspace, inputs, label, clip_norm=clip_norm)
        assert np.linalg.norm(found) == pytest.approx(expected)
        clip_norm *= 0.1
