"""What `msprobe config_check` and ConfigChecker do: packs of a training run's configuration, and their comparison.

A pack is a zip with members as mindstudio-probe names them: env, pip, hyperparameters/, dataset/, weights/, random/. A
new comparison is a file {name}_sheet.py with `sheet`, and a line in SHEETS of workbook.py. Nothing here imports a
framework.
"""
