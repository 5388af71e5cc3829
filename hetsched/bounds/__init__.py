"""Lower bounds on the makespan, cheap to dear; every one is a proof, never a guess."""
