"""Commands that stand in files of their own. What they need is imported when they are called: `swamp --help` is to be quick."""
