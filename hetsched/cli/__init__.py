"""The terminal: `hetsched` and `python -m hetsched`."""
