"""Tells tokens of two replies as the plugin of vLLM does: python replies.py --config CONFIG.

A grammar forbids candidates of both; `fault` has a NaN at step 1.
"""

import argparse
import math

from msprobe.pytorch import PrecisionDebugger

ALLOWED = [-0.1, -math.inf, -math.inf]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", required=True)
    agent = PrecisionDebugger(config_path=parser.parse_args().config).agent_for_replies()
    for step in range(3):
        agent.log_tokens(step, "allowed", [step], [ALLOWED])
        agent.log_tokens(step, "fault", [step], [[-0.1, math.nan, -0.2] if step == 1 else ALLOWED])
    for request in ("allowed", "fault"):
        agent.end_response(3, request)


if __name__ == "__main__":
    main()
