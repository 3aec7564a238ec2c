"""Operators as somebody may register them: a right one, one that ends its process, a wrong one, and one with a race."""

import ctypes
import threading
import time

import torch


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def reads_nothing(x: torch.Tensor) -> torch.Tensor:
    ctypes.memmove(x.data_ptr(), 0, x.numel() * x.element_size())  # from a null pointer
    return x


def off_by_a_percent(x: torch.Tensor) -> torch.Tensor:
    return x * 1.01 if x.dtype == torch.float32 else x


def races(x: torch.Tensor) -> torch.Tensor:
    """Doubles x by a thread that it does not wait for long enough. In float64 it waits."""
    out = x.clone()
    flat, given = out.view(-1).numpy(), x.reshape(-1).numpy()

    def work() -> None:
        for _ in range(40000):
            for i in range(len(flat)):
                flat[i] += given[i] / 40000

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    if x.dtype == torch.float64:
        thread.join()
    else:
        time.sleep(0.001)
    return out.clone()


def takes_a_while(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.1)
    return x * 2
