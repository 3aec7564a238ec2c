"""The extension whose neutral functions the modules here call: that of the framework that was imported first.

Each framework has one with the same functions for configuration and control (config_binding.h, control_binding.h). What
one of them makes, such as a Config, is for that one.
"""

import sys
from typing import Any

extension: Any = sys.modules.get("msprobe._agent") or sys.modules.get("msprobe._mindspore")
if extension is None:
    import torch  # noqa: F401  # its libraries are the extension's

    from msprobe import _agent as extension
