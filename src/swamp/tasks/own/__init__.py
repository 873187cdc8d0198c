"""What a user's own task is made of (`tasks/custom.py`, `tasks/own_loop.py`): model, data, loss and optimizer, and the checks of each."""
