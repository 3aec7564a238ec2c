"""Trains a net by a fused or plain optimizer, watched by one line or not, and prints a hash of its parameters.

--ill: what is planted. One layer is frozen by a learning rate of 0; one gets no gradient, as a ReLU behind it is dead;
the gradient of one vanishes by a factor; and from step 6 on the loss is 1e9 times as large.
--scaler: by a GradScaler, whose gradients overflow in step 5.
"""

import argparse
import hashlib

import torch


class Net(torch.nn.Module):
    def __init__(self, ill):
        super().__init__()
        self.ill = ill
        self.first = torch.nn.Linear(16, 32)
        self.frozen = torch.nn.Linear(32, 32)
        self.dead = torch.nn.Linear(32, 32)
        self.vanishing = torch.nn.Linear(32, 32)
        self.last = torch.nn.Linear(32, 1)

    def forward(self, batch):
        x = self.frozen(torch.tanh(self.first(batch)))
        x = x + torch.relu(self.dead(x) - (1000 if self.ill else 0))
        x = x + self.vanishing(x) * (1e-12 if self.ill else 1)
        return self.last(x)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config")
    parser.add_argument("--optimizer", default="AdamW")
    parser.add_argument("--fused", action="store_true")
    parser.add_argument("--foreach", action="store_true")
    parser.add_argument("--ill", action="store_true")
    parser.add_argument("--scaler", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    options = parser.parse_args()
    torch.manual_seed(3)
    torch.set_num_threads(1)
    model = Net(options.ill)
    frozen = list(model.frozen.parameters())
    others = [each for each in model.parameters() if not any(each is one for one in frozen)]
    groups = [{"params": others}, {"params": frozen, "lr": 0.0 if options.ill else 1e-3}]
    kind = {"fused": True} if options.fused else {"foreach": True} if options.foreach else {}
    optimizer = getattr(torch.optim, options.optimizer)(groups, lr=1e-3, weight_decay=0.0, **kind)
    if options.config:
        import msprobe

        msprobe.watch(model, optimizer, config_path=options.config, rank_id=0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4096.0, enabled=options.scaler)
    for step in range(options.steps):
        optimizer.zero_grad()
        for _ in range(2):
            loss = model(torch.randn(8, 16)).square().mean() / 2
            factor = 1e9 if options.ill and step >= 6 else 1e38 if options.scaler and step == 5 else 1
            scaler.scale(loss * factor).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1e12)
        scaler.step(optimizer)
        scaler.update()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
        digest.update(parameter.grad.numpy().tobytes())
    print(f"HASH {digest.hexdigest()}")
    print(f"NORM {model.first.weight.detach().double().norm().item():.9g}")


if __name__ == "__main__":
    main()
