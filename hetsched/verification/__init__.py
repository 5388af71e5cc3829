"""The independent check of schedules: it shares no code with the simulator or the heuristics."""
