"""From decisions to times, and the independent check of the result."""
