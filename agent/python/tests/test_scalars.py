"""What debugger.log takes."""

import torch
from msprobe._common import scalars


class Broken(dict):
    def items(self):
        raise RuntimeError("gone")


def test_values_that_raise_are_left_out(capfd):
    assert scalars.accepted(Broken(loss=1.0), None, torch.Tensor) == []
    assert "log: the values cannot be read: RuntimeError: gone. It is left out." in capfd.readouterr().out
