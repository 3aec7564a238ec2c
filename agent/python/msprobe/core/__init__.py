"""Where mindstudio-probe's users import from what is no framework's own."""
