"""List scheduling: by static priorities, dynamic choices, several inputs, and without lookahead."""
