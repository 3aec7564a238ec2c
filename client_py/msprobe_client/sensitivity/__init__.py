"""How much an operator makes of a small change of its inputs: recorded calls again in float64, with inputs perturbed.

torch is that of the caller's environment; rows.py does without.
"""
