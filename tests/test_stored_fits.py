"""Fits to tables in Parquet files, which are read block by block."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from conddp import (
    DPSGD,
    MLP,
    CondDP,
    CondNewton,
    Linear,
    OneShot,
    PrivacyBudget,
    PrivateMean,
    Records,
    RROnBins,
    SchemaError,
    SwitchCondDP,
)
from conddp.algorithms import Algorithm, Auto
from conddp.data import use_executor
from conddp.data.passes import count_additions
from conddp.data.stored_labels import open_labels
from conddp.data.stored_table import StoredTable
from conddp.features.conditioning import ConditioningMatrix
from conddp.features.grouped_rows import GroupedRows, whiten
from conddp.features.reading import read_records
from conddp.features.spectrum import Spectrum
from conddp.features.stored_features import StoredFeatures
from conddp.features.stored_reading import open_records
from conddp.heads import Embeddings, Head, Wide
from conddp.losses import Squared
from conddp.newton.release import ResidualQuery, release_residuals
from conddp.privacy import Curator, Neighbouring, RandomSource
from conddp.privacy.bounded_sum import BoundedSum, bound_rounding
from conddp.training.sampling import PoissonSampler
from conddp.training.stored_batches import StoredBatches, StoredInputs
from tests.stored_tables import HOME_COLUMNS, HOMES, make_homes, store_sparsely, write_parts


def fit(records: Records, algorithm: Algorithm, *, epsilon: float = 1.0) -> Any:
    source = RandomSource.for_neighbours(3)
    return algorithm.fit(records, PrivacyBudget(epsilon, 1e-6), random_source=source).model.parameters


class Recording(Curator):
    """Remembers sums, their sensitivities, and how they were said to be added up."""

    sums: list[BoundedSum]
    additions: ClassVar[int | None] = 0

    def __init__(self, *arguments: Any, additions: int | None = None, **settings: Any) -> None:
        super().__init__(*arguments, additions=additions, **settings)
        Recording.additions = additions

    def release_gaussian(self, bounded: BoundedSum, **settings: Any) -> Any:
        self.sums = [*getattr(self, "sums", []), bounded]
        return super().release_gaussian(bounded, **settings)


@pytest.mark.parametrize("algorithm", [CondNewton(), PrivateMean()])
def test_a_fit_is_that_of_the_table_in_memory(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, algorithm: Algorithm
) -> None:
    frame = make_homes(rng)
    paths = write_parts(tmp_path, frame)
    # Eigenvectors of nearly equal eigenvalues may differ, and the noise along them. Hardly any noise remains here.
    expected = fit(read_records(frame, HOMES)[0], algorithm, epsilon=1e6)
    assert fit(open_records(paths, HOMES)[0], algorithm, epsilon=1e6) == pytest.approx(expected, abs=1e-3)
    found = fit(open_records(paths, HOMES)[0], algorithm)
    algorithm.fit(open_records(paths, HOMES)[0], PrivacyBudget(1.0, 1e-6), curator_class=Recording)
    assert Recording.additions == count_additions(3000, StoredTable.of(paths, HOME_COLUMNS).partitions)
    assert np.abs(found - expected).max() > 2e-3
    with ThreadPoolExecutor(3) as pool, use_executor(pool.map):
        assert np.array_equal(fit(open_records(paths, HOMES)[0], algorithm), found)


def test_the_guarantee_states_the_increase_of_noise_that_was_used(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("conddp.algorithms.preparation.count_additions", lambda *_: 20)  # as if blocks were small
    frame = make_homes(rng, 30_000)
    for records, additions in (
        (open_records(write_parts(tmp_path, frame), HOMES)[0], 20),
        (read_records(frame, HOMES)[0], None),
    ):
        guarantee = PrivateMean().fit(records, PrivacyBudget(1.0, 1e-6)).guarantee
        assert guarantee.rounding == bound_rounding(30_000, additions)
        assert f"is larger by a factor of 1 + {guarantee.rounding:.1g}, which" in str(guarantee)
    assert bound_rounding(30_000, 20) < 0.1 * bound_rounding(30_000)


def test_a_fit_with_many_features_uses_norms_in_files(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_homes(rng)
    paths = write_parts(tmp_path, frame)
    expected = fit(read_records(frame, HOMES)[0], CondNewton(), epsilon=1e6)
    monkeypatch.setattr("conddp.features.grouped_rows.MOST_FORMED", 0)
    for sparsely in (False, True):
        store_sparsely(monkeypatch, sparsely)
        records = open_records(paths, HOMES)[0]
        assert fit(records, CondNewton(), epsilon=1e6) == pytest.approx(expected, abs=1e-3)
        assert isinstance(whiten(records.public), GroupedRows)


@pytest.mark.parametrize("head", [Linear(), MLP(hidden=(4,))])
@pytest.mark.parametrize(
    "algorithm",
    [
        DPSGD(num_steps=3),
        DPSGD(num_steps=7, batch_size=150),
        CondDP(num_steps=3),
        SwitchCondDP(num_steps=6, batch_size=200),
    ],
    ids=repr,
)
def test_descent_reads_the_same_batches_as_in_memory(
    rng: np.random.Generator,
    tmp_path: Path,
    small_pieces: None,
    monkeypatch: pytest.MonkeyPatch,
    algorithm: Algorithm,
    head: Head,
) -> None:
    monkeypatch.setattr("conddp.training.stored_batches.CELLS_AHEAD", 3 * 200 * 28)  # a few steps ahead
    frame = make_homes(rng, 1200)
    whole, stored = read_records(frame, HOMES)[0], open_records(write_parts(tmp_path, frame), HOMES)[0]
    monkeypatch.setattr(StoredFeatures, "load", lambda self: pytest.fail("the table was read into memory"))
    one, other = (
        algorithm.fit(each, PrivacyBudget(1.0, 1e-6), head=head, random_source=RandomSource.for_neighbours(3))
        for each in (whole, stored)
    )
    # Conditioned columns agree up to the rotation of equal directions only, which plain DP-SGD does not have.
    if isinstance(algorithm, DPSGD):
        assert other.model.parameters == pytest.approx(one.model.parameters, rel=1e-6, abs=1e-9)
    assert other.transcript == one.transcript and other.settings["clip_norm"] == pytest.approx(
        one.settings["clip_norm"]
    )


def test_samples_of_a_stored_table_are_gathered_exactly(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = make_homes(rng, 1500)
    stored = open_records(write_parts(tmp_path, frame), HOMES)[0]
    public = stored.public
    assert isinstance(public, StoredFeatures)
    spectrum = Spectrum.of(public)
    inputs = StoredInputs.of(public, ConditioningMatrix.identity(spectrum))
    monkeypatch.setattr("conddp.training.stored_batches.CELLS_AHEAD", 4 * 100 * len(inputs.offset))
    label = open_labels(stored.label, center=True)
    batches = StoredBatches(inputs, label, PoissonSampler(1500, 100 / 1500, np.random.default_rng(5)), 10)
    sampler = PoissonSampler(1500, 100 / 1500, np.random.default_rng(5))
    Z, y = inputs[:], label[:]
    for step in range(10):
        if not batches._ahead:
            batches._gather()
            assert len(batches._ahead) == (4 if step < 8 else 2)  # none for steps that do not follow
        drawn = sampler.draw()
        taken, labels = batches._ahead.popleft()
        assert np.array_equal(taken.public, Z[drawn]) and np.array_equal(labels, y[drawn])
    with pytest.raises(SchemaError, match="round by more than is covered"):
        many = tuple(slice(start, start + 10**6) for start in range(0, 10**9, 10**6))
        monkeypatch.setattr(StoredInputs, "partitions", many)
        monkeypatch.setattr(StoredInputs, "__len__", lambda self: 10**9)
        StoredBatches(inputs, label, PoissonSampler(10**9, 0.9, np.random.default_rng(5)), 1)


@pytest.mark.parametrize("sparsely", [False, True])
def test_other_algorithms_and_heads_read_a_table_that_fits_into_memory(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparsely: bool
) -> None:
    store_sparsely(monkeypatch, sparsely)
    frame = make_homes(rng, 1000)
    paths = write_parts(tmp_path, frame)
    fits: list[tuple[Algorithm, Head | None]] = [(OneShot(), None), (RROnBins(), None), (CondNewton(), Wide())]
    fits += [(Auto(), Wide()), (DPSGD(num_steps=2), Embeddings(num_bins=50, hidden=(4,)))]
    for algorithm, head in fits:
        stored = open_records(paths, HOMES, num_bins=None if head is None else head.bins)[0]
        result = algorithm.fit(stored, PrivacyBudget(1.0, 1e-6), head=head, curator_class=Recording)
        assert result.guarantee.num_records == 1000
        assert Recording.additions is None  # sums are not added up in blocks
        with monkeypatch.context() as small:
            small.setattr("conddp.features.stored_features.LARGEST_DENSE", 100)
            with pytest.raises(SchemaError, match="needs all of them in memory"):
                algorithm.fit(stored, PrivacyBudget(1.0, 1e-6), head=head)


@pytest.mark.parametrize("most_formed", [0, 256])
def test_no_label_moves_the_sums_of_a_stored_table_by_more_than_the_sensitivity(
    rng: np.random.Generator, tmp_path: Path, small_pieces: None, monkeypatch: pytest.MonkeyPatch, most_formed: int
) -> None:
    monkeypatch.setattr("conddp.features.grouped_rows.MOST_FORMED", most_formed)
    frame = make_homes(rng, 1500, num_streets=60)
    public = open_records(write_parts(tmp_path, frame), HOMES)[0].public
    rows = whiten(public)
    k = rows.num_directions
    weights = rows.pool(rng.dirichlet(np.ones(k)))
    query = ResidualQuery(0.3, weights / weights.sum(), 0.2, 0.5, 0.1)
    theta = 0.1 * rng.normal(size=k)
    label = rng.uniform(-0.5, 0.5, size=1500)

    def release(label: Any) -> BoundedSum:
        curator = Recording(np.random.default_rng(0), num_records=1500)
        release_residuals(
            rows,
            label,
            (-0.5, 0.5),
            theta,
            query,
            mu=1.0,
            neighbouring=Neighbouring.REPLACE,
            curator=curator,
            loss=Squared(),
        )
        return curator.sums[0]

    moves, sensitivities = [], set()
    longest = np.argsort(rows.compute_squared_norms())
    for record in [*longest[-6:], *longest[:2], *rng.integers(0, 1500, size=4)]:
        ends = []
        for end in (-0.5, 0.5):
            changed = label.copy()
            changed[record] = end
            ends.append(release(changed))
        moves.append(float(np.linalg.norm(ends[1].value - ends[0].value)))
        sensitivities |= {float(each.sensitivity) for each in ends}
    assert len(sensitivities) == 1  # it does not depend on labels
    [sensitivity] = sensitivities
    assert 0.3 * sensitivity < max(moves) <= sensitivity


def test_rounding_is_bounded_by_the_additions_of_a_blocked_sum() -> None:
    assert count_additions(8192) == 8193 and count_additions(10**6) == 8192 + 123
    spans = tuple(slice(start, start + 10**6) for start in range(0, 10**9, 10**6))
    assert count_additions(10**9, spans) == 8192 + 123 + 1000
    assert bound_rounding(10**9) > 100 and bound_rounding(10**9, count_additions(10**9, spans)) < 0.003
    assert bound_rounding(100, 200) == bound_rounding(100)
    # A float32 sum shows that the bound has the right form: u = 2^-24 there.
    values = np.random.default_rng(0).random(1 << 20).astype(np.float32)
    blocked = np.float32(0)
    for block in values.reshape(-1, 1024):
        partial = np.float32(0)
        for value in block:
            partial += value
        blocked += partial
    error = abs(float(blocked) - float(values.sum(dtype=np.float64)))
    assert 0 < error < len(values) * (1024 + 1024) * 2.0**-24
