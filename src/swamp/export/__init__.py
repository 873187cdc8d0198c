"""Write networks to files in several formats, read them again, and run sparse ones fast on a CPU."""
