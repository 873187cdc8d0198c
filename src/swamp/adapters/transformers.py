"""The callback for the Trainer of Hugging Face transformers (extra `text`).

    def train(model, run):
        arguments = TrainingArguments("out", num_train_epochs=5, seed=run.seed, save_strategy="no", report_to="none")
        Trainer(model, arguments, train_dataset=data, callbacks=[TransformersCallback(run)]).train()

The Trainer seeds everything with its own `seed`, so give it `run.seed`. A training that was killed starts over, since a callback cannot
tell the Trainer to begin with a later epoch; those that were finished are not repeated.
"""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from swamp.training.own_loop import LoopTraining


class TransformersCallback(TrainerCallback):  # type: ignore[misc]
    """Tells the run that an epoch has ended, with the loss that the Trainer logged last, and stops the Trainer when no more is needed."""

    def __init__(self, run: LoopTraining) -> None:
        self.run = run

    def on_epoch_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        loss = next((record["loss"] for record in reversed(state.log_history) if "loss" in record), None)
        if self.run.epoch_end(self.run.epoch, loss):
            control.should_training_stop = True
