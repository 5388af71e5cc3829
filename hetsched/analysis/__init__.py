"""Analysis of a problem before scheduling: levels, windows, loads, closure."""
