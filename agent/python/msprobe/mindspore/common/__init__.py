"""Where mindstudio-probe has MsprobeStep, too."""
