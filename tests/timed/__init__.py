"""What runs alone: it measures time or counts of the whole machine, or needs what a machine has once."""
