from pathlib import Path

import numpy as np
import pytest

from conddp.datasets import DATASETS, DatasetNotFound, load_dataset, make_synthetic
from tests.conftest import load_or_skip

SHAPES = {
    "wine": (4898, 11),
    "boston_housing": (506, 12),
    "energy": (19735, 25),
    "ca_housing": (20640, 8),
    "supercond": (4252, 81),
    "toms_hardware": (28179, 96),
}
MEAN_LABELS = {"wine": 5.877909, "energy": 97.694958, "ca_housing": 2.068558, "toms_hardware": 3486.441020}


@pytest.mark.parametrize("name", DATASETS)
def test_real_sets_have_their_published_shape_and_mean(name: str) -> None:
    dataset = load_or_skip(name)
    assert dataset.public.values.shape == SHAPES[name]
    if name in MEAN_LABELS:
        assert dataset.label.values.mean() == pytest.approx(MEAN_LABELS[name], abs=1e-6)


def test_an_absent_set_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("conddp.datasets._folders", lambda: iter([tmp_path]))
    with pytest.raises(DatasetNotFound, match="CONDDP_DATA"):
        load_dataset("wine")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="Known: boston_housing, ca_housing"):
        load_dataset("iris")


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_synthetic_design_has_the_stated_spectrum(power: float) -> None:
    dataset = make_synthetic(power=power, num_records=300, num_columns=20)
    singular = np.linalg.svd(dataset.public.values, compute_uv=False)
    assert singular == pytest.approx(np.arange(1, 21) ** -power, rel=1e-10)
    assert np.abs(dataset.label.values).max() <= 1.0
