from pathlib import Path
from typing import Any

import pytest

import conddp.privacy.accounting as accounting
from conddp.cache import ContentCache, cache_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDDP_CACHE", str(tmp_path / "cache"))


SETTING: dict[str, Any] = {"num_steps": 30, "sampling_probability": 0.05}


def test_a_calibration_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING)

    def refuse(*_: object) -> float:
        raise AssertionError("computed again")

    monkeypatch.setattr(accounting, "_compute_epsilon_by_pld", refuse)
    assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == first


def test_a_damaged_cache_is_ignored_and_never_lowers_the_noise() -> None:
    right = accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING)
    path = cache_folder() / accounting.CALIBRATIONS
    path.write_text(path.read_text().replace(repr(right), repr(right / 10)) + "not json\n\x00")
    assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == right


def test_other_requests_are_not_answered(tmp_path: Path) -> None:
    cache = ContentCache(tmp_path / "c.jsonl")
    cache.put({"epsilon": 1.0, "delta": 1e-6}, 3.0)
    assert cache.get({"epsilon": 1.0, "delta": 1e-6}) == 3.0
    assert cache.get({"epsilon": 1.0, "delta": 1e-5}) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = ContentCache(tmp_path / "file" / "c.jsonl")
    cache.put({}, 1.0)
    assert cache.get({}) is None
