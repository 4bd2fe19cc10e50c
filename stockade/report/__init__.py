"""Pictures of runs, made of the files in their folders. Matplotlib (extra `plots`) is imported when one is drawn."""

from stockade.report.search_plots import draw_search

__all__ = ["draw_search"]
