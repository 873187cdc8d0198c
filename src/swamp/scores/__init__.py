"""Scores say how much each weight is worth to a pruning method. They are pure functions of any model.

Each takes the names of the weights to score and does not change the model, buffers included. A score is a tensor of the weight's shape.

    scores = swamp.scores.snip(model, lambda model: F.cross_entropy(model(x), y), ["conv1.weight", "conv2.weight"])
    mask = keep_highest(scores, Mask.ones({name: score.shape for name, score in scores.items()}), num_keep=1000)
"""

from swamp.scores.gradients import grasp, snip, synflow, synflow_mask
from swamp.scores.layers import erk_counts, random_mask, uniform_counts

__all__ = ["erk_counts", "grasp", "random_mask", "snip", "synflow", "synflow_mask", "uniform_counts"]
