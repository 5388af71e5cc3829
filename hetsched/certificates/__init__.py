"""Certificates: proofs of bounds that a stranger can check."""
