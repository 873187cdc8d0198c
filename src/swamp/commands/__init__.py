"""Commands that are long enough for a file of their own; `cli` registers them."""
