"""Stored runs as typed records: read and checked once, without opening a task."""
