"""Commands that are more than a few lines, a file each, and what commands have in common. Imports stand inside functions: help is fast."""
