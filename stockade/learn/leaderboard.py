"""Scores to print beside ours: the leader board of CAGE Challenge 2, and its winner replayed.

Each row: returns against B_line after 30, 50, 100 steps, then Meander, then Sleep; means of 1000 episodes.
"""

from dataclasses import dataclass

REDS = ("bline", "meander", "sleep")
HORIZONS = (30, 50, 100)
#: Columns of every row.
CELLS = tuple((red, horizon) for red in REDS for horizon in HORIZONS)


@dataclass(frozen=True)
class Row:
    """A row of the table: who, under which rule set, and the mean returns of CELLS."""

    name: str
    rules: str
    means: tuple[float, ...]

    @property
    def total(self) -> float:
        """Sum over the cells: the challenge's score."""
        return sum(self.means)


_ASLEEP = (0.0, 0.0, 0.0)
PUBLISHED = (
    Row("CardiffUni, published", "leaderboard", (-3.47, -6.41, -13.76, -5.64, -8.69, -16.6, *_ASLEEP)),
    Row("CardiffUni, replayed", "leaderboard", (-3.50, -6.27, -13.20, -5.54, -8.72, -16.37, *_ASLEEP)),
    Row("CardiffUni, replayed", "current", (-5.36, -12.73, -37.23, -5.54, -8.72, -16.37, *_ASLEEP)),
    Row("Keeping it RL, ensemble", "leaderboard", (-3.48, -5.85, -11.39, -6.47, -10.33, -19.38, *_ASLEEP)),
    Row("Mindrake", "leaderboard", (-3.53, -6.2, -12.78, -6.76, -10.13, -17.65, *_ASLEEP)),
    Row("React-Restore, published", "leaderboard",
        (-58.83, -93.05, -184.34, -44.29, -85.75, -192.63, -27.0, -46.0, -92.0)),
    Row("random, published", "leaderboard", (-154.06, -347.1, -726.92, -33.43, -171.49, -566.41, -2.8, -4.45, -8.94)),
    Row("sleep, published", "leaderboard", (-218.65, -480.17, -1134.03, -39.31, -267.6, -972.43, *_ASLEEP)),
)  # fmt: skip
