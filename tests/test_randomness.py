import copy
import pickle
from collections.abc import Iterator

import numpy as np
import pytest
from randomgen import AESCounter

from conddp.privacy.randomness import RandomSource


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
    generator = source.generator("noise")
    assert asked == [128]
    assert not source.seeded
    assert isinstance(generator.bit_generator, AESCounter)


def test_two_sources_without_a_seed_differ() -> None:
    one, other = (RandomSource.of(None).generator("noise").normal(size=4) for _ in range(2))
    assert not np.any(one == other)


def test_copies_of_an_unseeded_source_never_repeat_noise() -> None:
    source = RandomSource.of(None)
    sources = [source, copy.deepcopy(source), pickle.loads(pickle.dumps(source))]
    assert len({each.generator("noise").normal() for each in sources}) == 3
    assert source.generator("noise").normal() != source.generator("noise").normal()


@pytest.mark.parametrize("seed", [3, np.int64(3)])
def test_a_seed_repeats_and_says_so(seed: int) -> None:
    one, other = RandomSource.of(seed), RandomSource.of(3)
    assert one.seeded
    assert one.generator("noise").normal() == other.generator("noise").normal()


def test_generators_and_random_states_are_taken_and_move_on() -> None:
    for make in (np.random.default_rng, np.random.RandomState):
        state = make(0)
        first, second = (RandomSource.of(state).generator("noise").normal() for _ in range(2))
        assert first != second
        assert RandomSource.of(make(0)).generator("noise").normal() == first


def test_every_purpose_has_random_numbers_of_its_own() -> None:
    source = RandomSource.of(3)
    assert source.generator("noise").normal() != source.generator("samples").normal()


def test_a_bound_source_depends_on_every_part_and_on_where_parts_end() -> None:
    lists = [[b"a", b"b"], [b"ab"], [b"a", b"", b"b"], [b"a", b"c"], [b"b", b"a"], []]
    sources = [RandomSource.of(3).bind(parts) for parts in lists] + [RandomSource.of(3), RandomSource.of(4).bind([])]
    assert len({each.generator("noise").normal() for each in sources}) == len(sources)
    assert RandomSource.of(3).bind([b"a", b"b"]) == sources[0]
    assert all(each.seeded for each in sources)


def test_large_seeds_are_used_to_the_last_bit() -> None:
    seeds = (2**200, 2**200 + 1)
    assert len({RandomSource.of(seed).generator("noise").normal() for seed in seeds}) == 2


def test_without_a_seed_nothing_is_read_to_bind_a_source() -> None:
    def fail() -> Iterator[bytes]:
        raise AssertionError("read")
        yield b""

    assert RandomSource.of(None).bind(fail()) == RandomSource.of(None)
    with pytest.raises(AssertionError, match="read"):
        RandomSource.of(1).bind(fail())


def test_neighbours_share_random_numbers_only_where_that_is_asked_for() -> None:
    source = RandomSource.for_neighbours(3)
    assert source.seeded and source.bind([b"one"]) == source.bind([b"other"])
    assert RandomSource.of(3).bind([b"one"]) != RandomSource.of(3).bind([b"other"])


def test_a_source_does_not_show_its_seed() -> None:
    assert "7654321" not in repr(RandomSource.of(7654321))


@pytest.mark.parametrize("wrong", ["a", -1, 1.5, True])
def test_other_random_states_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="random_state must be"):
        RandomSource.of(wrong)
