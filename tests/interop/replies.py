"""Made-up replies of a language model, and what judges them: run by either tool's Python, it prints verdicts as JSON.

python replies.py "numbers from 0"     # the names of ALL, with their verdicts
"""

import json
import math
import random
import sys


def candidates(rng, top1, mass, k=5):
    """k candidates whose best has log-probability top1, and that have `mass` together (at least the best one's)."""
    rest = max(mass - math.exp(top1), 1e-9)
    share = min(rest / (k - 1), math.exp(top1) * 0.999)
    ids = rng.sample(range(1000), k)
    return dict(zip(ids, [top1, *([math.log(share)] * (k - 1))], strict=True))


def text(seed, length):
    rng = random.Random(seed)
    tokens = [min(int(rng.paretovariate(0.5)), 999) for _ in range(length)]
    return [candidates(rng, -min(rng.expovariate(1.5), 4), 0.97) for _ in tokens], tokens


def loop(seed, length, period, noise=0.0, before=0):
    """`period` tokens over and over, each with a log-probability of its own, after `before` tokens of text."""
    rng = random.Random(seed)
    logps = [-rng.uniform(0.001, 0.15) for _ in range(period)]
    topk, tokens = text(seed + 1, before)
    for i in range(length):
        top1 = min(logps[i % period] - rng.uniform(0, noise), -1e-4)
        topk.append(candidates(rng, top1, 0.999))
        tokens.append(i % period if noise < 0.1 else rng.randrange(1000))
    return topk, tokens


def garbled(seed, length, share):
    rng = random.Random(seed)
    bad = [rng.random() < share for _ in range(length)]
    topk = [candidates(rng, -5.5 if each else -0.8, 0.03 if each else 0.9) for each in bad]
    return topk, [rng.randrange(1000) for _ in range(length)]


def rare(seed, length, at):
    topk, tokens = text(seed, length)
    topk[at] = candidates(random.Random(seed), -6.4, 0.01)
    return topk, tokens


def not_finite(seed, length, at, value):
    topk, tokens = loop(seed, length, 7)
    topk[at] = {**topk[at], next(iter(topk[at])): value}
    return topk, tokens


def smooth(seed, length, period):
    """Log-probabilities along a sine: a peak whose harmonics are there."""
    topk = [
        candidates(random.Random(seed + i), -0.1 + 0.09 * math.sin(2 * math.pi * i / period), 0.999)
        for i in range(length)
    ]
    return topk, [i % 9 for i in range(length)]


def weak_harmonic(seed, period=38):
    """A peak of the autocorrelation whose double and triple are above 0 and at most a third; the tokens repeat too."""
    rng = random.Random(f"{period} {seed}")
    width, at, noise = rng.randint(1, 6), rng.randrange(period), rng.uniform(0, 0.006)
    logps = [
        min((-0.19 if (i - at) % period < width else -0.025) + rng.uniform(-noise, noise), -0.001) for i in range(384)
    ]
    return [{1: logp, 2: -6.0} for logp in logps], [i % 5 for i in range(384)]


def every_reply():
    lengths = [1, 2, 63, 64, 65, 127, 128, 129, 191, 192, 193, 255, 256, 257, 400, 1100]
    replies = {f"text{length}-{seed}": text(seed, length) for length in lengths for seed in range(3)}
    replies |= {f"loop{period}": loop(period, 400, period) for period in range(1, 41)}
    replies |= {f"loop{period}-of{length}": loop(period, length, period) for period in (3, 8) for length in lengths}
    replies |= {f"long-loop{period}": loop(period, 1100, period) for period in (1, 2, 45, 60)}
    replies |= {f"late-loop{period}": loop(period, 300, period, before=150) for period in range(2, 40, 3)}
    replies |= {f"noisy-loop{period}": loop(period, 400, period, noise=0.03) for period in range(2, 40, 3)}
    replies |= {f"sine{period}": smooth(period, 1200, period) for period in range(4, 42, 3)}
    replies |= {f"garbled{share}-{n}": garbled(n, n, share / 20) for share in range(1, 12) for n in (63, 64, 128, 300)}
    replies |= {f"rare{at}-of{n}": rare(at, n, at) for n in (40, 128, 200) for at in (0, 39)}
    for value in (math.nan, math.inf, -math.inf):
        replies |= {f"{value}-at{at}": not_finite(1, 200, at, value) for at in (0, 127, 199)}
    replies |= {f"weak-harmonic{seed}": weak_harmonic(seed) for seed in range(30)}
    replies["empty"] = ([], [])
    replies["no-logprobs"] = ([], [1, 2])
    return replies


if __name__ == "__main__":
    from msprobe.response_anomaly import analyze_output_anomaly

    said = {name: analyze_output_anomaly([topk], [tokens], None)[0] for name, (topk, tokens) in every_reply().items()}
    json.dump(said, sys.stdout)
