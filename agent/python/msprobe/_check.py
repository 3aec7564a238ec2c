"""Refuses early and in words what would otherwise fail deep inside a shared object.

``python -m msprobe._check`` says what ``import msprobe.pytorch`` would: the torch that it works with, or why it does
not.
"""

import importlib.metadata
import sys
import sysconfig
from pathlib import Path


def check_python() -> None:
    """Raises ImportError in an interpreter without the GIL: other threads run functions while hooks go in and out."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError(
            "this Python is free-threaded, and msprobe-agent relies on the GIL; use a build of Python that has it"
        )


def check_environment(torch_version: str) -> None:
    """Raises ImportError where the extension cannot work: no GIL, another torch, or mindstudio-probe's files."""
    check_python()
    try:
        importlib.metadata.version("mindstudio-probe")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        raise ImportError(
            "mindstudio-probe is installed in this environment and owns the package 'msprobe' as well; "
            "uninstall it (pip uninstall mindstudio-probe) and reinstall msprobe-agent, or use another environment"
        )
    built = Path(__file__).with_name("built_for_torch.txt").read_text(encoding="utf-8").strip()
    if built.split(".")[:2] != torch_version.split("+")[0].split(".")[:2]:
        found = ".".join(torch_version.split(".")[:2])
        raise ImportError(
            f"this msprobe-agent was built for torch {built}, but torch {torch_version} is installed; "
            f"install the msprobe-agent built for torch {found}, or torch {'.'.join(built.split('.')[:2])}"
        )
    try:
        from msprobe import _agent  # noqa: F401
    except ImportError as error:
        raise ImportError(f"msprobe._agent could not be loaded with torch {torch_version}: {error}") from error


def main() -> int:
    try:
        check_python()  # before torch, whose own error would hide it
        import torch

        check_environment(torch.__version__)
    except ImportError as error:
        print(error)
        return 1
    print(f"torch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
