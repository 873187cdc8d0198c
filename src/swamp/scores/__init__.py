"""Scores: what a pruning method says each weight is worth, as pure functions of any model.

Each takes the names of the weights to score and leaves the model as it is, buffers included. A score is a tensor of the weight's shape.

    scores = swamp.scores.snip(model, lambda model: F.cross_entropy(model(x), y), ["conv1.weight", "conv2.weight"])
    mask = keep_highest(scores, Mask.ones({name: score.shape for name, score in scores.items()}), num_keep=1000)
"""

from swamp.scores.grasp import grasp
from swamp.scores.layers import erk_counts, random_mask, uniform_counts
from swamp.scores.snip import snip
from swamp.scores.synflow import synflow, synflow_mask

__all__ = ["erk_counts", "grasp", "random_mask", "snip", "synflow", "synflow_mask", "uniform_counts"]
