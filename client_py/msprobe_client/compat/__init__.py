"""mindstudio-probe's own commands, arguments and result files; v1: those of its 1.0 line."""
