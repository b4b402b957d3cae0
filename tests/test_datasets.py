from pathlib import Path

import numpy as np
import pytest

from conddp.research.datasets import (
    DatasetNotFound,
    describe_dataset,
    list_datasets,
    load_dataset,
    locate_dataset,
    make_synthetic,
    prepare_dataset,
)
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


@pytest.mark.parametrize("name", SHAPES)
def test_real_sets_have_their_published_shape_and_mean(name: str) -> None:
    dataset = load_or_skip(name)
    assert dataset.public.values.shape == SHAPES[name]
    if name in MEAN_LABELS:
        assert dataset.label.values.mean() == pytest.approx(MEAN_LABELS[name], abs=1e-6)


def test_an_absent_set_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("conddp.research.datasets._folders", lambda: iter([tmp_path]))
    with pytest.raises(DatasetNotFound, match=r"fetch_dataset\('wine'\).*CONDDP_DATA"):
        load_dataset("wine")
    with pytest.raises(DatasetNotFound, match="by hand.*Criteo_Conversion_Search/CriteoSearchData.*CONDDP_DATA"):
        load_dataset("criteo_ssc")


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_criteo_log_is_found_and_must_be_converted(
    suffix: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("conddp.research.datasets._folders", lambda: iter([tmp_path / "none", tmp_path]))
    log = tmp_path / "Criteo_Conversion_Search" / f"CriteoSearchData{suffix}"
    log.parent.mkdir()
    log.write_bytes(b"")
    assert locate_dataset("criteo_ssc") == (log, False)
    with pytest.raises(DatasetNotFound, match=rf"must be converted.*convert_criteo\('{log}', folder\)"):
        load_dataset("criteo_ssc")
    facts = describe_dataset("criteo_ssc")
    assert facts["file"] == str(log) and "load_criteo(folder)" in facts["how to use it"]
    (state,) = [entry["state"] for entry in list_datasets() if entry["name"] == "criteo_ssc"]
    assert state == "here"


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="Known: boston_housing, ca_housing"):
        load_dataset("iris")


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_the_synthetic_design_has_the_stated_spectrum(power: float) -> None:
    dataset = make_synthetic(power=power, num_records=300, num_columns=20)
    singular = np.linalg.svd(dataset.public.values, compute_uv=False)
    assert singular == pytest.approx(np.arange(1, 21) ** -power, rel=1e-10)
    assert np.abs(dataset.label.values).max() <= 1.0


def test_the_paper_scales_the_label_of_energy_to_its_range() -> None:
    load_or_skip("energy")
    paper, ours = prepare_dataset("energy", "paper"), prepare_dataset("energy", "ours")
    assert (paper.label.values.min(), paper.label.values.max()) == (0.0, 1.0)
    assert (paper.label.bounds.low, paper.label.bounds.high) == (0.0, 1.0)
    assert ours.label.values == pytest.approx(paper.label.values)  # the same units
    assert ours.label.bounds.high == pytest.approx((1100 - 10) / 1070)  # the declared range


def test_supercond_is_standardized_in_the_papers_preparation_only() -> None:
    load_or_skip("supercond")
    paper = prepare_dataset("supercond", "paper").public.values
    assert paper.mean(axis=0) == pytest.approx(0.0, abs=1e-9)
    assert paper.std(axis=0) == pytest.approx(1.0)
    assert prepare_dataset("supercond", "ours").public.values.std() > 10


def test_synthetic_sets_are_prepared_by_their_power() -> None:
    assert prepare_dataset("synthetic 0.5", "paper").public.values == pytest.approx(
        make_synthetic(power=0.5).public.values
    )
