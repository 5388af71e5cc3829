"""From decisions to times, and the values that schedules are compared by."""
