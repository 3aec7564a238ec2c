"""Four threads, 200 calls each, with arguments and results that tell which call they belong to."""

import sys
import threading

import torch

THREADS, CALLS = 4, 200


def work(thread, barrier):
    barrier.wait()
    for call in range(CALLS):
        value = float(thread * CALLS + call)
        torch.mul(torch.full((3,), value), 2.0)


def main():
    torch.set_num_threads(1)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=sys.argv[1])
    debugger.start()
    barrier = threading.Barrier(THREADS)
    threads = [threading.Thread(target=work, args=(number, barrier)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    debugger.stop()
    debugger.step()


if __name__ == "__main__":
    main()
