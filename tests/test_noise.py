import copy
import pickle

import numpy as np
import pytest
import torch
from randomgen import AESCounter
from scipy.stats import kstest

from conddp.privacy.randomness import RandomSource
from conddp.training.clipping import ClippedSum
from conddp.training.noise import add_noise


def test_the_generator_is_aes_128_in_counter_mode() -> None:
    # FIPS 197, appendix C.1: the key 00 01 .. 0f encrypts the block 00 11 .. ff to this.
    key = np.frombuffer(bytes(range(16)), dtype="<u8")
    block = int.from_bytes(bytes(17 * i for i in range(16)), "little")
    raw = AESCounter(key=key, counter=block).random_raw(2)
    assert raw.astype("<u8").tobytes().hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_without_a_seed_the_key_comes_from_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def randbits(bits: int) -> int:
        asked.append(bits)
        return 5

    monkeypatch.setattr("conddp.privacy.randomness.secrets.randbits", randbits)
    source = RandomSource.of(None)
    generator = source.generator()
    assert asked == [128]
    assert not source.seeded
    assert isinstance(generator.bit_generator, AESCounter)


def test_two_sources_without_a_seed_differ() -> None:
    one, other = (RandomSource.of(None).generator().normal(size=4) for _ in range(2))
    assert not np.any(one == other)


def test_copies_of_an_unseeded_source_never_repeat_noise() -> None:
    source = RandomSource.of(None)
    sources = [source, copy.deepcopy(source), pickle.loads(pickle.dumps(source))]
    assert len({each.generator().normal() for each in sources}) == 3
    assert source.generator().normal() != source.generator().normal()


@pytest.mark.parametrize("seed", [3, np.int64(3)])
def test_a_seed_repeats_and_says_so(seed: int) -> None:
    one, other = RandomSource.of(seed), RandomSource.of(3)
    assert one.seeded
    assert one.generator().normal() == other.generator().normal()


def test_generators_and_random_states_are_taken_and_move_on() -> None:
    generator = np.random.default_rng(0)
    assert RandomSource.of(generator).generator() is generator
    state = np.random.RandomState(0)
    first, second = (RandomSource.of(state).generator().normal() for _ in range(2))
    assert first != second
    assert RandomSource.of(np.random.RandomState(0)).generator().normal() == first


@pytest.mark.parametrize("wrong", ["a", -1, 1.5, True])
def test_other_random_states_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="random_state must be"):
        RandomSource.of(wrong)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("engine", ["numpy", "torch"])
def test_noise_is_gaussian_with_multiplier_times_clip_norm(dtype: str, engine: str) -> None:
    clip_norm, multiplier = np.array([0.5, 4.0], dtype=dtype), np.array([3.0, 0.5], dtype=dtype)
    value = np.full((2, 50_000), 7.0, dtype=dtype)
    generators = [np.random.default_rng(seed) for seed in (1, 2)]
    if engine == "torch":
        clipped = ClippedSum(torch.from_numpy(value), torch.from_numpy(clip_norm))
        noisy = add_noise(clipped, noise_multiplier=torch.from_numpy(multiplier), generators=generators).numpy()
    else:
        noisy = add_noise(ClippedSum(value, clip_norm), noise_multiplier=multiplier, generators=generators)
    assert noisy.dtype == dtype
    for row, scale in zip(noisy, (1.5, 2.0), strict=True):
        # Kolmogorov-Smirnov, fixed seed, false alarm 1e-3.
        assert kstest((row - 7.0) / scale, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(noisy)[0, 1]) < 0.02
