"""Placement of large graphs: clusters and partitions of tasks, each on one device."""
