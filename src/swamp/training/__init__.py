"""Training: trains one job from its start to its end."""
