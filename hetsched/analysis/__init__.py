"""What a problem's structure tells before anything is scheduled: levels, windows, loads, closure."""
