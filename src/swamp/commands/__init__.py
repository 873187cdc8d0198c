"""Commands, one a file. What takes long to import is imported when a command runs."""
