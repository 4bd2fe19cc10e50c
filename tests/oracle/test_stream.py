"""The oracle's stream of random numbers is CPython's, draw for draw."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from .stream import Stream

_DRAWS = st.one_of(
    st.tuples(st.just("below"), st.integers(1, 2**20)),
    st.tuples(st.just("unit"), st.just(0)),
    st.tuples(st.just("shuffled"), st.integers(1, 13)),
    st.tuples(st.just("one_of"), st.integers(1, 7)),
    st.tuples(st.just("sample"), st.sampled_from([(4096, 3), (14, 4), (14, 5), (21, 5), (22, 5)])),
)


def _by_random(source: random.Random, draw: str, argument) -> object:
    """What the standard library gives for one draw."""
    if draw == "below":
        return source.randrange(argument)
    if draw == "unit":
        return source.random()
    if draw == "one_of":
        return source.choices(range(argument))[0]
    if draw == "sample":
        n, k = argument
        return source.sample(range(n), k)
    items = list(range(argument))
    source.shuffle(items)
    return items


def _by_stream(stream: Stream, draw: str, argument) -> object:
    arguments = {"unit": (), "sample": argument}.get(draw, (argument,))
    return getattr(stream, draw)(*arguments)


@given(seed=st.integers(0, 2**63 - 1), draws=st.lists(_DRAWS, max_size=60))
def test_every_draw_equals_the_standard_library(seed, draws):
    source, stream, clone = random.Random(seed), Stream(seed), random.Random()
    for draw, argument in draws:
        assert _by_stream(stream, draw, argument) == _by_random(source, draw, argument)
        clone.setstate(source.getstate())
        assert stream.peek() == clone.getrandbits(32)


@pytest.mark.parametrize("words", [0, 1, 623, 624, 625, 2000])
def test_words_taken_counts_across_blocks(words):
    source, stream = random.Random(7), Stream(7)
    assert [stream.word() for _ in range(words)] == [source.getrandbits(32) for _ in range(words)]
    stream.peek()
    assert stream.words_taken == words
