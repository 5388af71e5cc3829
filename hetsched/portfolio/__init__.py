"""Many methods on one budget: the members, worker processes, and the method `auto`."""
