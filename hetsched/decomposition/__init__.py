"""Modules of a graph solved one by one and joined: DiviML's MILP-SPLIT."""
