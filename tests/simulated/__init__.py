"""Faults and jobs of the simulated fleet through the real pipeline, in process, without services."""
