"""The callback for Lightning's Trainer (extra `lightning`).

    def train(model, run):
        trainer = lightning.Trainer(max_epochs=5, callbacks=[LightningCallback(run)], enable_checkpointing=False, logger=False)
        trainer.fit(model, loader())

Lightning makes the optimizer inside `fit`, so a training that was killed starts over; those that were finished are not repeated.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from swamp.training.own_loop import LoopTraining


class LightningCallback(Callback):  # type: ignore[misc]
    """Tells the run that an epoch has ended, with the loss if the module logs `train_loss`; stops the trainer when no more is needed."""

    def __init__(self, run: LoopTraining) -> None:
        self.run = run

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        loss = trainer.callback_metrics.get("train_loss")
        if self.run.epoch_end(trainer.current_epoch, None if loss is None else float(loss)):
            trainer.should_stop = True
