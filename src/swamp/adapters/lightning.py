"""The callback for Lightning's Trainer (extra `lightning`).

    def train(model, run):
        trainer = lightning.Trainer(max_epochs=5, callbacks=[LightningCallback(run)], enable_checkpointing=False, logger=False)
        trainer.fit(model, loader())

A training that was killed goes on after its last checkpoint, with the optimizers and schedules that Lightning makes. It starts over if
its length is given as `max_steps`, which Lightning would count anew, or if a schedule follows a metric, which is known too late.
"""

from __future__ import annotations

from typing import Any

from lightning.pytorch.callbacks import Callback

from swamp.training.own_loop import LoopTraining


class LightningCallback(Callback):  # type: ignore[misc]
    """Tells the run that an epoch has ended, with the loss if the module logs `train_loss`; stops the trainer when no more is needed."""

    def __init__(self, run: LoopTraining) -> None:
        self.run = run

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Keep the optimizers and schedules, which are made by now, and begin with the epoch that comes after the checkpoint."""
        schedules = trainer.lr_scheduler_configs
        if trainer.max_steps != -1 or any(config.reduce_on_plateau for config in schedules):
            return
        kept = {f"optimizer {index}": optimizer for index, optimizer in enumerate(trainer.optimizers)}
        kept |= {f"schedule {index}": config.scheduler for index, config in enumerate(schedules)}
        self.run.keep(**kept)
        done = trainer.fit_loop.epoch_progress.current
        done.ready = done.started = done.processed = done.completed = self.run.first_epoch

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        loss = trainer.callback_metrics.get("train_loss")
        if self.run.epoch_end(trainer.current_epoch, None if loss is None else float(loss)):
            trainer.should_stop = True
