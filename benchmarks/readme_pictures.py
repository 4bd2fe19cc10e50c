"""Makes the two pictures at the top of README: `python benchmarks/readme_pictures.py --help`; needs Chromium.

an episode -> its page -> a browser without a window -> docs/images/readme-replay.png
the search of `make search` -> values with P(best) -> docs/images/readme-search.svg
"""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from common import run_script
from PIL import Image

import stockade
from stockade.errors import InputError
from stockade.files import write_durably
from stockade.workflow.plots import draw_search

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEIGHT = 1280, 935  # pixels of the page: the network, the timeline, the judged move


@dataclass(frozen=True)
class ReadmePictures:
    """Make the pictures at the top of README: about two minutes."""

    images: Path = ROOT / "docs" / "images"  # Folder for the pictures.
    search: Path | None = None  # Folder of a finished search to draw, instead of a new one.

    def run(self) -> int:
        with tempfile.TemporaryDirectory() as folder:
            found = self.search or _searched(Path(folder))
            values = draw_search(found)[0].with_suffix(".svg").read_bytes()
            write_durably(self.images.absolute() / "readme-replay.png", _replayed(Path(folder)))
        write_durably(self.images.absolute() / "readme-search.svg", values)
        return 0


def _searched(folder: Path) -> Path:
    """The folder of a small search, run anew."""
    settings = ["--max-steps", "30", "--total-episodes", "150000", "--name", "search", "--runs", str(folder)]
    subprocess.run([sys.executable, "-m", "stockade.cli", "search", *settings], check=True)
    return folder / "search"


def _replayed(folder: Path) -> bytes:
    """An episode at a move that lost much, with red on many hosts, as a PNG file with a palette."""
    sys.path.insert(0, str(ROOT))
    from tests.browser import CHROMIUM, DRIVER, open_browser

    if CHROMIUM is None or DRIVER is None:
        raise InputError("there is no browser: `make browser` installs Chromium on Debian, as root")
    replay = stockade.replay("react-restore", red="meander", seed=7, rollouts=200)
    held = (replay.episode.truth["red_access"] > 0).sum(axis=1)  # (T + 1,) hosts that red is on
    page, step = replay.save(folder / "replay.html"), 1 + max(replay.analyses[0].worst(), key=lambda t: held[t + 1])
    with open_browser(folder / "profile") as browser:
        browser.open(page, WIDTH, fragment=f"#step={step}")
        browser.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1}
        shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png", "clip": clip})
    content, image = io.BytesIO(), Image.open(io.BytesIO(base64.b64decode(shot["data"])))
    image.convert("RGB").quantize(128).save(content, "png", optimize=True)
    return content.getvalue()


if __name__ == "__main__":
    sys.exit(run_script(ReadmePictures, __doc__))
