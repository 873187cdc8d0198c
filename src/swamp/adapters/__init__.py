"""Callbacks that call `run.epoch_end` from the training loops of other libraries, for `swamp.prune_with`."""
