"""Where version 1.0 of mindstudio-probe has module_dump."""
