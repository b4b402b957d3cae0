import json
import math
from pathlib import Path
from typing import Any

import pytest

import conddp.privacy.accounting as accounting
from conddp.cache import ContentCache, cache_folder


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONDDP_CACHE", str(tmp_path / "cache"))


SETTING: dict[str, Any] = {"num_steps": 30, "sampling_probability": 0.05}


@pytest.fixture
def evaluations(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Noise multipliers that the accountant has evaluated."""
    evaluated: list[float] = []
    evaluate = accounting._compute_epsilon_by_pld

    def count(event: accounting.GaussianEvent, delta: float, interval: float) -> float:
        evaluated.append(event.noise_multiplier)
        return evaluate(event, delta, interval)

    monkeypatch.setattr(accounting, "_compute_epsilon_by_pld", count)
    accounting._is_calibrated.cache_clear()
    return evaluated


def test_a_calibration_is_computed_once_and_then_verified_once(evaluations: list[float]) -> None:
    first = accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING)
    assert len(evaluations) > 3
    evaluations.clear()
    assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == first
    assert evaluations == [first]
    assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == first
    assert evaluations == [first]  # in the same process even the verification is not repeated


PLANTED = (1e-9, 0.1, 0.99, 1.05, 100.0, 1e30, 0.0, -1.0, math.nan, math.inf, "2.35", None, True, [2.35], {"a": 1})


def test_a_planted_calibration_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factors of the right answer, and values of other types; the line has a correct digest."""
    right = accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING)
    path = cache_folder() / accounting.CALIBRATIONS
    key = json.loads(path.read_text())["content"]["key"]
    monkeypatch.setattr(accounting, "_calibrate_by_pld", lambda *_, **__: -7.0)  # what computing it anew gives
    assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == right
    for planted in PLANTED:
        ContentCache(path).put(key, planted * right if isinstance(planted, float) else planted)
        assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == -7.0


def test_a_damaged_cache_is_ignored_and_never_lowers_the_noise() -> None:
    right = accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING)
    path = cache_folder() / accounting.CALIBRATIONS
    path.write_text(path.read_text().replace(repr(right), repr(right / 10)) + "not json\n\x00")
    assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == right
    for content in (b"\xff\xfe\x00", b"[" * 10**6, b'{"content": 1}\n[]\n7\n'):
        path.write_bytes(content)
        assert accounting.calibrate_noise_multiplier(1.0, 1e-5, **SETTING) == right


def test_a_folder_or_a_huge_file_in_place_of_the_cache_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)  # takes no space on disk
    for name in ("folder", "huge"):
        assert ContentCache(tmp_path / name).get({}) is None


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
