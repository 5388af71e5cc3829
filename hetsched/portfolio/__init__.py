"""Many methods on one budget: who takes part, worker processes, and the method `auto`."""
