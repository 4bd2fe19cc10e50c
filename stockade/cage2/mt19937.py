"""CPython's `random.Random` inside the kernel: the same words, and the same use of them, seed for seed.

Works on the ledger's `mt`, `words`, `next` and `blocks`. Words are tempered in blocks of 624. Arithmetic is
in int64, where products of a 32-bit word and the constants below still fit.
"""

import numpy as np

from stockade.cage2.jit import compiled
from stockade.cage2.state import MT_WORDS

_MASK, _UPPER, _LOWER, _MATRIX = 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x9908B0DF
_SHIFT = 397
#: The state for one fixed seed, into which CPython mixes the user's. NumPy's old generator begins with the same.
_START = np.random.RandomState(19650218).get_state(legacy=False)["state"]["key"].astype(np.int64)


@compiled
def seed(ledger, value):
    """As `random.seed(value)`; `value` is a uint64."""
    low, high = np.int64(value & np.uint64(_MASK)), np.int64(value >> np.uint64(32))
    key_length = 2 if high > 0 else 1
    mt = ledger.mt
    mt[:] = _START
    previous = _START[0]
    for k in range(MT_WORDS):
        i, j = k % (MT_WORDS - 1) + 1, k % key_length
        key = low if j == 0 else high
        previous = ((np.int64(mt[i]) ^ ((previous ^ (previous >> 30)) * 1664525)) + key + j) & _MASK
        mt[i] = previous
    for k in range(MT_WORDS, 2 * MT_WORDS - 1):
        i = k % (MT_WORDS - 1) + 1
        previous = ((np.int64(mt[i]) ^ ((previous ^ (previous >> 30)) * 1566083941)) - i) & _MASK
        mt[i] = previous
    mt[0] = 0x80000000
    ledger.next = MT_WORDS
    ledger.blocks = -1


@compiled
def _twist(here, after, ahead):
    mixed = (np.int64(here) & _UPPER) | (np.int64(after) & _LOWER)
    return np.int64(ahead) ^ (mixed >> 1) ^ ((mixed & 1) * _MATRIX)


@compiled
def refill(ledger):
    """Make the next 624 words."""
    mt, words = ledger.mt, ledger.words
    for k in range(MT_WORDS - _SHIFT):
        mt[k] = _twist(mt[k], mt[k + 1], mt[k + _SHIFT])
    for k in range(MT_WORDS - _SHIFT, MT_WORDS - 1):
        mt[k] = _twist(mt[k], mt[k + 1], mt[k + _SHIFT - MT_WORDS])
    mt[MT_WORDS - 1] = _twist(mt[MT_WORDS - 1], mt[0], mt[_SHIFT - 1])
    for k in range(MT_WORDS):
        y = np.int64(mt[k])
        y ^= y >> 11
        y ^= (y << 7) & 0x9D2C5680
        y ^= (y << 15) & 0xEFC60000
        y ^= y >> 18
        words[k] = y
    ledger.next = 0
    ledger.blocks += 1


@compiled
def next_word(ledger):
    """32 random bits, as int64."""
    if ledger.next == MT_WORDS:
        refill(ledger)
    word = np.int64(ledger.words[ledger.next])
    ledger.next += 1
    return word


@compiled
def words_drawn(ledger):
    """How many words the stream has handed out since it was seeded."""
    return ledger.blocks * MT_WORDS + ledger.next


@compiled
def randbelow(ledger, n, bits):
    """A number below n, as CPython draws it: `bits` is n.bit_length(), and what does not fit is drawn again."""
    value = next_word(ledger) >> (32 - bits)
    while value >= n:
        value = next_word(ledger) >> (32 - bits)
    return value


@compiled
def random(ledger):
    """As `random.random()`: 53 bits out of two words."""
    high = next_word(ledger) >> 5
    low = next_word(ledger) >> 6
    return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0)


@compiled
def shuffle(ledger, items):
    """As `random.shuffle(list(range(len(items))))`, into `items`, which are returned."""
    n = len(items)
    for i in range(n):
        items[i] = i
    bits = 0
    while n >> bits:
        bits += 1
    for i in range(n - 1, 0, -1):
        if (i + 1) >> (bits - 1) == 0:
            bits -= 1
        j = randbelow(ledger, i + 1, bits)
        items[i], items[j] = items[j], items[i]
    return items
