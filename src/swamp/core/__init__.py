"""Pure values and rules: state, mask, noise, schedules, pruning, jobs, cost."""
