"""acl_save: writes one tensor to a file where it stands, in eager code and in graphs, at every replay."""

import atexit
from pathlib import Path

import torch

from msprobe._common import log

_tokens: dict[torch.device, torch.Tensor] = {}
_held: dict[str, torch.Tensor] = {}  # of captured graphs: each replay writes it anew


def acl_save(x: torch.Tensor, path: str) -> torch.Tensor:
    """Saves x for torch.load at `path`, whose directory is made; gives x.

    Compiled, every run of the graph saves. Inside a captured graph (CUDA, ACL), whose replay runs no host code, the
    tensor is kept beside the graph, and flush_saves, which AclGraphDumper.step and the end of the process call, writes
    what the last replay left. A tensor that cannot be saved is a line in the log.
    """
    _make_token(str(x.device))
    torch.ops.msprobe.save(x, _tokens[x.device], path)
    return x


def flush_saves() -> None:
    """Writes what captured graphs have left."""
    for path, tensor in _held.items():
        _write(tensor, path)


def _make_token(device: str) -> bool:
    """What the operator says that it writes. A compiler runs this while it traces, and traces none of it."""
    known = torch.device(device)
    if known not in _tokens:
        _tokens[known] = torch.zeros(1, dtype=torch.uint8, device=known)
    return True


_make_token._dynamo_marked_constant = True  # type: ignore[attr-defined]  # as torch._dynamo.assume_constant_result has it


def _save(x: torch.Tensor, token: torch.Tensor, path: str) -> None:
    if not _is_captured(x.device):
        return _write(x, path)
    if path not in _held:
        if not _held:
            atexit.register(flush_saves)
        _held[path] = torch.empty_like(x)
    _held[path].copy_(x)


def _is_captured(device: torch.device) -> bool:
    if device.type == "cpu":
        return False
    module = torch.get_device_module(device)
    return bool(getattr(module, "is_current_stream_capturing", lambda: False)())


def _write(x: torch.Tensor, path: str) -> None:
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        torch.save(x.detach().cpu().clone(), path)
    except (OSError, RuntimeError) as error:
        log.warning(f"acl_save: {path} cannot be written: {error}")


# As for msprobe::probe: what an operator writes is not left out of a graph.
_library = torch.library.Library("msprobe", "FRAGMENT")
_library.define("save(Tensor x, Tensor(a!) token, str path) -> ()")
_library.impl("save", _save, "CompositeExplicitAutograd")
_library.impl("save", lambda x, token, path: None, "Meta")
