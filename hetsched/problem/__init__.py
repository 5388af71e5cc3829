"""What is to be scheduled, and on what."""
