"""A runner with the call sites that vllm-ascend's has, written from its contract, and a small model that it serves.

served.py --config CONFIG SCENARIO     one of the functions below; prints what the test asserts as JSON
"""

import argparse
import json
import threading

import torch
from say import say


class Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(32, 8)
        self.layer = torch.nn.Linear(8, 8)
        self.vision = torch.nn.Linear(8, 8)
        self.meeting = None  # of the threads that run it at once

    def forward(self, input_ids, positions):
        if (input_ids < 0).any():
            raise RuntimeError("a token below 0")
        if self.meeting is not None:
            self.meeting.wait(60)
        return self.layer(self.embed(input_ids)) * (1 + positions.unsqueeze(-1))

    def compute_logits(self, hidden):
        return torch.nn.functional.linear(hidden, self.embed.weight)


class Runner:
    """execute_model and sample_tokens are two calls; a dummy run is a third. Nothing is tried or caught."""

    def __init__(self, config):
        from msprobe.pytorch import PrecisionDebugger

        torch.manual_seed(0)
        self.debugger = PrecisionDebugger(str(config))
        self.debugger_started = False
        self.model = Decoder()
        self.done = {}  # request -> positions computed

    def start_dump_data(self, **keywords):
        if self.debugger_started:
            return
        self.debugger.start(self.model, **keywords)
        self.debugger_started = True

    def finalize_dump_data(self, **keywords):
        if not self.debugger_started:
            return
        if hasattr(self.debugger, "stop"):
            self.debugger.stop()
            self.debugger_started = False
        self.debugger.step(**keywords)

    def execute_model(self, scheduled, wrong=False, threads=1):
        self.start_dump_data(scheduled_tokens=scheduled)
        positions = []
        for request, tokens in scheduled.items():
            first = self.done.get(request, 0)
            positions += range(first, first + tokens)
            self.done[request] = first + tokens
        positions = torch.tensor(positions)
        ids = torch.full_like(positions, -1) if wrong else positions % 32
        if threads == 1:
            self.hidden = self.model(input_ids=ids, positions=positions)
            return
        parts = [None] * threads

        def part(number):
            rows = slice(number * len(ids) // threads, (number + 1) * len(ids) // threads)
            parts[number] = self.model(input_ids=ids[rows], positions=positions[rows])

        workers = [threading.Thread(target=part, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        self.hidden = torch.cat(parts)

    def encode(self, scheduled):
        """A rank that encodes for others: the decoder is not called."""
        self.start_dump_data(scheduled_tokens=scheduled)
        encoded = self.model.vision(torch.ones(len(scheduled), 8))
        self.debugger.stop()
        self.debugger_started = False
        self.debugger.step()
        return encoded

    def sample_tokens(self):
        token = self.model.compute_logits(self.hidden).argmax(-1)
        self.finalize_dump_data()
        return token.tolist()

    def pool(self, scheduled):
        self.execute_model(scheduled)
        self.finalize_dump_data()

    def dummy_run(self):
        self.model(input_ids=torch.zeros(4, dtype=torch.long), positions=torch.arange(4))
        self.finalize_dump_data(dump=False)

    def serve(self, scheduled, **keywords):
        self.execute_model(scheduled, **keywords)
        return self.sample_tokens()


def requests(runner):
    """Warm-up, then a prompt of each of two requests, then a token of each, one pass an idle rank's between."""
    runner.dummy_run()
    sampled = [runner.serve({"a": 3, "b": 2})]
    runner.dummy_run()
    return [*sampled, runner.serve({"b": 1, "a": 1}), runner.serve({"a": 1})]


def pooling(runner):
    for tokens in (3, 2):
        runner.pool({"a": tokens})


def raising(runner):
    """The second batch raises, and nobody finalizes it."""
    runner.serve({"a": 3})
    try:
        runner.execute_model({"b": 2}, wrong=True)
    except RuntimeError as error:
        said = str(error)
    runner.serve({"a": 1})
    runner.serve({"a": 1})
    return said


def raising_then_idle(runner):
    """After the batch that raised comes a dummy run, whose finalize discards."""
    runner.serve({"a": 3})
    try:
        runner.execute_model({"b": 2}, wrong=True)
    except RuntimeError as error:
        said = str(error)
    runner.dummy_run()
    runner.serve({"a": 1})
    return said


def microbatches(runner):
    """Both threads are inside the model before either calls its first layer."""
    runner.model.meeting = threading.Barrier(2)
    for scheduled in ({"a": 4, "b": 2}, {"a": 1, "b": 1}):
        runner.serve(scheduled, threads=2)


def encoder(runner):
    for images in (2, 1):
        runner.encode({f"image {number}": 1 for number in range(images)})
    runner.serve({"a": 2})


SCENARIOS = ["requests", "pooling", "raising", "raising_then_idle", "microbatches", "encoder"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config")
    parser.add_argument("scenario", choices=SCENARIOS)
    options = parser.parse_args()
    with torch.inference_mode():
        runner = Runner(options.config)
        said = globals()[options.scenario](runner)
    runner.debugger.wait()
    say("SAID", json.dumps(said))


if __name__ == "__main__":
    main()
