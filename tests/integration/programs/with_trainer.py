"""Trains a small net for four steps of two micro-batches in somebody else's loop, with our callbacks or without.

Prints PARAMETERS and a digest of what it has learned. --first: HF's goes on from its checkpoint after so many steps.
"""

import argparse
import hashlib
import pathlib

import torch

STEPS, MICRO_BATCHES = 4, 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x, labels=None):
        return {"loss": self.out(torch.relu(self.hidden(x))).square().mean()}


def batches():
    return torch.linspace(-1, 1, STEPS * MICRO_BATCHES * 2 * 8).reshape(-1, 8)


def transformers(net, config, place, first):
    from transformers import Trainer, TrainingArguments

    callbacks = []
    if config is not None:
        from msprobe.pytorch.callbacks.transformers import MsprobeCallback

        callbacks.append(MsprobeCallback(config))
    arguments = TrainingArguments(
        output_dir=str(place),
        per_device_train_batch_size=2,
        gradient_accumulation_steps=MICRO_BATCHES,
        max_steps=STEPS,
        logging_steps=1,
        save_steps=2,
        learning_rate=1e-2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"x": row} for row in batches()]
    trainer = Trainer(model=net, args=arguments, train_dataset=data, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=str(place / f"checkpoint-{first}") if first else None)


def with_lightning(package, net, config, place):
    class Module(package.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, _):
            loss = self.net(batch)["loss"]
            self.log("loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-2)

    callbacks, logger = [], False
    if config is not None:
        from msprobe.pytorch.callbacks.lightning import MsprobeCallback, MsprobeLogger

        callbacks, logger = [MsprobeCallback(config)], [MsprobeLogger()]
    trainer = package.Trainer(
        max_epochs=1,
        accelerator="cpu",
        accumulate_grad_batches=MICRO_BATCHES,
        log_every_n_steps=1,
        callbacks=callbacks,
        logger=logger,
        default_root_dir=place,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), torch.utils.data.DataLoader(batches(), batch_size=2))


def lightning(net, config, place, first):
    import lightning.pytorch

    with_lightning(lightning.pytorch, net, config, place)


def pytorch_lightning(net, config, place, first):
    import pytorch_lightning

    with_lightning(pytorch_lightning, net, config, place)


def accelerate(net, config, place, first):
    from accelerate import Accelerator

    trackers = []
    if config is not None:
        from msprobe.pytorch.callbacks.accelerate import MsprobeTracker

        trackers.append(MsprobeTracker())
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=MICRO_BATCHES, log_with=trackers)
    data = torch.utils.data.DataLoader(batches(), batch_size=2)
    model, optimizer, data = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=1e-2), data)
    accelerator.init_trackers("run")
    if config is not None:
        import msprobe

        msprobe.watch(model, optimizer, config_path=config)
    for number, batch in enumerate(data):
        with accelerator.accumulate(model):
            loss = model(batch)["loss"]
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.log({"loss": loss.item(), "note": "not a number"}, step=number // MICRO_BATCHES)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--config")
    parser.add_argument("--place", type=pathlib.Path, required=True)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(1)
    net = Net()
    globals()[options.trainer](net, options.config, options.place, options.first)
    learned = b"".join(value.detach().numpy().tobytes() for value in net.state_dict().values())
    print("PARAMETERS", hashlib.sha256(learned).hexdigest())


if __name__ == "__main__":
    main()
