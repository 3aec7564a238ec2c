"""The parts of a step of endless_training.py, in order, and the records of each part."""

LAYERS = 3
SINES = 4
PERIOD = 8  # a step has the values of the one PERIOD before it

PARTS = (
    *(f"block{layer}" for layer in range(LAYERS)),
    *(f"sin{index}" for index in range(SINES)),
    "big",
    "loss",
    "backward",
)
POSITIONS = 2 * len(PARTS)  # each is begun, and has returned


def records_of(part, level, names):
    """Names of the records that are whole once the part has returned, of all `names` of a step."""
    if part == "backward":
        return {
            name for name in names if name.endswith(".backward") or ".backward." in name or ".parameters_grad." in name
        }
    kind, index = part.rstrip("0123456789"), part[len(part.rstrip("0123456789")) :]
    modules = {f"Module.blocks.{index}.Block.forward.0", f"Module.blocks.{index}.linear.Linear.forward.0"}
    calls = {
        "block": {f"Functional.linear.{index}.forward", f"Functional.relu.{index}.forward"},
        "sin": {f"Torch.sin.{index}.forward"},
        "big": {"Torch.cos.0.forward"},
        "loss": {"Functional.mse_loss.0.forward"},
    }[kind]
    wanted = set()
    if level in ("L0", "mix") and kind == "block":
        wanted |= modules
    if level in ("L1", "mix"):
        wanted |= calls
    return wanted
