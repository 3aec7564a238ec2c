"""How property tests draw their examples.

Every change is tested with the same draws. MSPROBE_SEED=N draws others, and the same ones again for the same N;
MSPROBE_EXAMPLES=N takes N examples of each test. Only with it is a failure made smaller: that takes hundreds of runs.
"""

import os

from hypothesis import HealthCheck, Phase, seed, settings

SEED = int(os.environ["MSPROBE_SEED"]) if "MSPROBE_SEED" in os.environ else None
SAID = (
    "property tests: the draws of every change; MSPROBE_SEED=N gives others"
    if SEED is None
    else f"property tests: MSPROBE_SEED={SEED} gives these draws again"
)


def drawn(examples):
    """Decorates a test of hypothesis; examples is their number where the environment has none."""
    patient = "MSPROBE_EXAMPLES" in os.environ
    bounded = settings(
        max_examples=int(os.environ.get("MSPROBE_EXAMPLES", examples)),
        deadline=None,
        derandomize=SEED is None,
        database=None,
        phases=[Phase.generate, Phase.shrink] if patient else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )

    def decorate(test):
        return bounded(test if SEED is None else seed(SEED)(test))

    return decorate
