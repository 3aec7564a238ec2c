"""What each module and operator adds to the error of a run, apart from what it inherits.

torch is that of the caller's environment; rows.py does without.
"""
