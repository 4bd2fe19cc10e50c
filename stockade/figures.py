"""How all figures look: one palette, one style; a Matplotlib figure -> SVG, PDF or pixels.

They are made for papers: no titles (a caption says more), text stays text, the same content gives the same bytes.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stockade.errors import missing_package

#: Okabe and Ito's, which the colour-blind can tell apart: blue, vermilion, green, purple, orange, sky.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLUE, PALE_BLUE, GREY, PALE_GREY, DARK = COLOURS[0], "#8fbbd9", "#767d86", "#c3c8ce", "#333333"
WIDTH, DPI = 7.5, 120  # inches, a page of a paper; dots per inch: 900 pixels
_NO_DATE = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans", "Arial"], "font.size": 9, "axes.titlesize": 9,
    "axes.titlelocation": "left", "legend.fontsize": 8.5, "legend.frameon": False, "text.parse_math": False,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "axes.spines.top": False, "axes.spines.right": False,
    "axes.unicode_minus": False, "axes.axisbelow": True, "axes.grid": True, "grid.color": "#e6e8eb",
    "grid.linewidth": 0.6, "xtick.bottom": False, "ytick.left": False,
    "svg.fonttype": "none", "svg.hashsalt": "stockade", "pdf.fonttype": 42,
}  # fmt: skip


@contextmanager
def paper_style() -> Iterator[None]:
    """Figures that are made within look as all do; also a decorator. InputError: Matplotlib is not installed."""
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise missing_package(error) from error
    with matplotlib.rc_context(_STYLE):
        yield


def new_figure(height: float, width: float = WIDTH) -> Any:
    """An empty one, of these inches; pyplot knows nothing of it."""
    from matplotlib.figure import Figure

    figure: Any = Figure((width, height), dpi=DPI, layout="constrained")
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)  # viewers have fonts that are a little wider
    return figure


@paper_style()
def rendered(figure: Any, kind: str) -> bytes:
    """The content of its file: `svg` or `pdf`."""
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=_NO_DATE[kind])
    return content.getvalue() if kind == "pdf" else _compact(content.getvalue())


def _compact(svg: bytes) -> bytes:
    """Half the size: what is said again and again is left out; tenths of a point are enough for places."""
    family = b"font-family: 'DejaVu Sans', 'Arial', sans-serif"
    svg = svg.replace(family + b"; ", b"").replace(
        b'<style type="text/css">', b'<style type="text/css">text{' + family + b"}"
    )
    again = rb"<metadata>.*?</metadata>|(?<=<g) id=\"[a-z]+[\w.]*_\d+\"| transform=\"rotate\(-0[^\"]*\"|(?<=\n) +"
    svg = re.sub(again, b"", svg, flags=re.DOTALL)
    return re.sub(rb"(?<=\.\d)\d+(?=[^<>]*>)", b"", svg)


def legend_below(figure: Any, *axes: Any) -> None:
    """One legend for all panels, of what is drawn in any of them, in as many columns as fit."""
    handles: dict[str, Any] = {}
    for panel in axes:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    longest = max(len(line) for label in handles for line in label.splitlines())
    columns = max(1, min(4, 124 // (longest + 8)))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
