"""Runs: from a recipe and settings to a configuration, and from there to rows on disk."""
