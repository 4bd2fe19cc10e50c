"""Pages of training runs and searches: charts to hover over and zoom into, settings, verdicts, comparisons."""
