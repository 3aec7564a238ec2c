"""Refuses early and in words what would otherwise fail deep inside a shared object."""

import importlib.metadata
import sys
import sysconfig


def check_environment(mindspore_version: str) -> None:
    """Raises ImportError where the extension cannot work: a Python without a build, or mindstudio-probe."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise ImportError(
            "this Python is free-threaded, and msprobe-agent relies on the GIL; use a build of Python that has it"
        )
    try:
        importlib.metadata.version("mindstudio-probe")
    except importlib.metadata.PackageNotFoundError:
        pass
    else:
        raise ImportError(
            "mindstudio-probe is installed in this environment and owns the package 'msprobe' as well; "
            "uninstall it (pip uninstall mindstudio-probe) and reinstall msprobe-agent, or use another environment"
        )
    if tuple(int(part) for part in mindspore_version.split(".")[:2]) < (2, 7):
        raise ImportError(
            f"MindSpore {mindspore_version} is installed, and msprobe-agent captures MindSpore 2.7 and later; "
            "install one of these"
        )
    try:
        from msprobe import _mindspore  # noqa: F401
    except ImportError as error:
        python = ".".join(map(str, sys.version_info[:2]))
        raise ImportError(f"msprobe._mindspore could not be loaded in Python {python}: {error}") from error
