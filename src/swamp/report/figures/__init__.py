"""Pictures for papers: each a function from what runs found to a figure of matplotlib."""
