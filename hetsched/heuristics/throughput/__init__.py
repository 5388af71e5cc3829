"""Search for the least load per input when inputs stream through."""
