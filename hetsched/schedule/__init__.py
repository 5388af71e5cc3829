"""Decisions, schedules, their simulation, memory profiles and objectives."""
