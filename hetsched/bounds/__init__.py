"""Lower bounds on the makespan, from cheap to expensive, each with a proof."""
