"""The kernel's MT19937 is CPython's `random.Random`: for every seed, every kind of draw in any order."""

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stockade.cage2 import mt19937
from stockade.cage2.jit import as_records, compiled
from stockade.cage2.state import ledger_dtype

WORD, UNIT, BELOW, SHUFFLE = range(4)
SEEDS = st.one_of(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**63 - 1, 2**63, 2**64 - 1]),
)
DRAWS = st.lists(
    st.one_of(
        st.just((WORD, 0)),
        st.just((UNIT, 0)),
        st.tuples(st.just(BELOW), st.integers(1, 2**31 - 1)),
        st.tuples(st.just(BELOW), st.integers(1, 16)),
        st.just((SHUFFLE, 13)),
    ),
    max_size=200,
)


@compiled
def _draw(ledgers, seed, kinds, limits, out):
    ledger = ledgers[0]
    mt19937.seed(ledger, seed)
    for k in range(len(kinds)):
        if kinds[k] == WORD:
            out[k] = mt19937.next_word(ledger)
        elif kinds[k] == UNIT:
            out[k] = mt19937.random(ledger)
        elif kinds[k] == BELOW:
            bits = 0
            while limits[k] >> bits:
                bits += 1
            out[k] = mt19937.randbelow(ledger, limits[k], bits)
        else:
            mt19937.shuffle(ledger, ledger.names)
            for position in range(limits[k]):
                out[k] = 13 * out[k] + ledger.names[position] % 13
    return mt19937.words_drawn(ledger)


def by_the_kernel(seed: int, draws: list[tuple[int, int]]) -> tuple[list[float], int]:
    """Results as floats (an order of 13 as its first digits), and the number of words taken."""
    kinds, limits = np.array(draws, np.int64).reshape(-1, 2).T.copy()
    out = np.zeros(len(draws))
    ledgers = as_records(np.zeros(1, ledger_dtype(100)))
    taken = _draw(ledgers, np.uint64(seed), kinds, limits, out)
    return out.tolist(), int(taken)


def by_cpython(seed: int, draws: list[tuple[int, int]]) -> list[float]:
    source, results = random.Random(seed), []
    for kind, limit in draws:
        if kind == WORD:
            results.append(float(source.getrandbits(32)))
        elif kind == UNIT:
            results.append(source.random())
        elif kind == BELOW:
            results.append(float(source.randrange(limit)))
        else:
            order, value = list(range(limit)), 0.0
            source.shuffle(order)
            for item in order:
                value = 13 * value + item
            results.append(value)
    return results


@settings(max_examples=settings().max_examples // 2)  # each has up to hundreds of draws
@given(seed=SEEDS, draws=DRAWS)
@example(seed=2**64 - 1, draws=[(SHUFFLE, 13)] * 100)
def test_every_draw_equals_cpython(seed, draws):
    assert by_the_kernel(seed, draws)[0] == by_cpython(seed, draws)


@pytest.mark.parametrize("words", [0, 1, 623, 624, 625, 1248, 2000])
def test_words_are_counted_across_blocks(words):
    results, taken = by_the_kernel(9, [(WORD, 0)] * words)
    assert taken == words
    assert results == by_cpython(9, [(WORD, 0)] * words)


def test_a_seed_counts_in_all_its_64_bits():
    firsts = {by_the_kernel(seed, [(WORD, 0)])[0][0] for seed in (5, 2**32 + 5, 2**33 + 5, 2**63 + 5)}
    assert len(firsts) == 4
