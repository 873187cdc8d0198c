"""Tasks: the one seam to the world of models and data."""
