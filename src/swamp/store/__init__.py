"""Run directories: every path and format of what a run stores."""
