"""Refuses early and in words what would otherwise fail deep inside a shared object.

``python -m msprobe._check`` says what ``import msprobe.pytorch`` would: the torch that it works with, or why it does
not.
"""

import importlib.metadata
import sys
import sysconfig

from msprobe._built import builds, choose, minor_of


def check_python() -> None:
    """Raises ImportError in an interpreter without the GIL: other threads run functions while hooks go in and out."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError(
            "this Python is free-threaded, and msprobe-agent relies on the GIL; use a build of Python that has it"
        )


def check_environment(torch_version: str) -> None:
    """Raises ImportError where the extension cannot work: a Python or torch without a build, or mindstudio-probe."""
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
    built, found = builds(), minor_of(torch_version)
    if found not in built:
        raise ImportError(
            f"this msprobe-agent was built for torch {', '.join(built)}, but torch {torch_version} is installed; "
            f"install the msprobe-agent built for torch {found}, or torch {list(built)[-1]}"
        )
    python = ".".join(map(str, sys.version_info[:2]))
    if python not in built[found]:
        raise ImportError(
            f"this msprobe-agent was built for torch {found} with Python {', '.join(built[found])}, but this is Python "
            f"{python}; install the msprobe-agent built for Python {python}, or use Python {built[found][-1]}"
        )
    choose(torch_version)
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
