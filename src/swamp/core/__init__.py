"""Values and rules without side effects: states, masks, noise, schedules, pruning, jobs and their cost."""
