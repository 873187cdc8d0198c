"""Tasks: models, their data and their losses, behind one interface (`task.py`)."""
