"""Runs: configuration, the store, and the loop that turns a method into rows on disk."""
