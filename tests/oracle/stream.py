"""The random numbers of the reference model: CPython's `random.Random`, one 32-bit word at a time.

The reference simulator draws everything from the global `random`. Reading its words in blocks here makes two things
cheap that `random.Random` lacks: looking at the next word without taking it, and counting the words taken. The methods
spell out what `randrange`, `shuffle`, `sample`, `choices` and `random` make of words; test_stream.py holds them to it.
"""

import random
from array import array

_BLOCK = 624


class Stream:
    """MT19937 as `random.seed(seed)` starts it."""

    __slots__ = ("_blocks", "_source", "_words")

    def __init__(self, seed: int) -> None:
        self._source = random.Random(seed)
        self._blocks = 0
        self._words: list[int] = []  # the coming words, the next one last
        self._refill()

    def _refill(self) -> None:
        block = self._source.getrandbits(32 * _BLOCK).to_bytes(4 * _BLOCK, "little")
        self._words = array("I", block).tolist()[::-1]
        self._blocks += 1

    @property
    def words_taken(self) -> int:
        """How many 32-bit words were taken since the seed."""
        return self._blocks * _BLOCK - len(self._words)

    def peek(self) -> int:
        """The next `getrandbits(32)`, left in the stream."""
        if not self._words:
            self._refill()
        return self._words[-1]

    def word(self) -> int:
        """`getrandbits(32)`."""
        if not self._words:
            self._refill()
        return self._words.pop()

    def below(self, n: int) -> int:
        """`randrange(n)`: the top bits of a word, again while they are not below `n` (so even n=1 takes words)."""
        shift = 32 - n.bit_length()
        value = self.word() >> shift
        while value >= n:
            value = self.word() >> shift
        return value

    def unit(self) -> float:
        """`random()`: 53 bits out of two words."""
        high, low = self.word() >> 5, self.word() >> 6
        return (high * 67108864.0 + low) / 9007199254740992.0

    def shuffled(self, n: int) -> list[int]:
        """`x = list(range(n)); shuffle(x)`."""
        items = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            items[i], items[j] = items[j], items[i]
        return items

    def one_of(self, n: int) -> int:
        """The index that `choices(items)` takes of n items: by `random()`, not by `randrange`."""
        return int(self.unit() * n)

    def sample(self, n: int, k: int) -> list[int]:
        """`sample(range(n), k)` for k <= 5: from a shrinking pool up to n = 21, above that by drawing anew."""
        chosen: list[int] = []
        if n > 21:
            while len(chosen) < k:
                value = self.below(n)
                if value not in chosen:
                    chosen.append(value)
            return chosen
        pool = list(range(n))
        for left in range(n, n - k, -1):
            i = self.below(left)
            chosen.append(pool[i])
            pool[i] = pool[left - 1]
        return chosen
