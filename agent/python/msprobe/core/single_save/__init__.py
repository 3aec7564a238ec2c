"""Named tensors that a program saves by itself, and their comparison, as in mindstudio-probe."""
