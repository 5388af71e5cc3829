"""Local search over devices and sequences of tasks: simulated annealing, tabu search, evolution."""
