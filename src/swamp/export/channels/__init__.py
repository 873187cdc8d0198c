"""Finds the channels of a model, which the pattern `coupled` prunes in all their layers and `narrow.py` leaves out."""
