"""Modules of a graph, solved separately and joined: DiviML's MILP-SPLIT."""
