"""Fast methods: list scheduling and search."""
