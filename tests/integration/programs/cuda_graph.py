"""Captures a model that is being recorded into a CUDA graph, launches that, and compares with the model itself."""

import argparse

import torch
from say import say


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", required=True)
    options = parser.parse_args()
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=options.config)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8)).cuda()
    x = torch.randn(256, 64, device="cuda")
    with torch.no_grad():
        expected = model(x)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            model(x)
        torch.cuda.current_stream().wait_stream(stream)
        debugger.start(model=model)
        model(x)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = model(x)
        graph.replay()
        debugger.stop()
    debugger.step()
    assert torch.equal(y, expected)
    say("EQUAL")


if __name__ == "__main__":
    main()
