"""Task graphs, clusters, and the scheduling problems made of them."""
