"""Prints as JSON of which kind 20,000 made-up tokens are, by whichever `msprobe` this Python has.

mindstudio-probe then also runs its gen_model_config with the arguments: importing that takes seconds.
"""

import json
import random
import sys

POOLS = [
    *("abcXYZéß", "0123456789٣", "中文字漢", "ひらがなカタカナ", "한국어", "ไทย", "ΑΒΓ", "абв", "ابت", "अआ", "😀🚀"),
    *("!?.,;:()[]{}", "+<>=~^$|", "\x00\x01\x7f\ufffd", " \tĠ▁Ċ", "𝒜𝔸ℎʰ½", "\ufe0f\ue000\u2028"),
]


def texts():
    rng = random.Random(3)
    yield from map(chr, range(0x2FFF))
    for _ in range(8000):
        pools = rng.sample(POOLS, rng.randint(1, 4))
        yield "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(1, 7)))


if __name__ == "__main__":
    try:
        from msprobe.response_anomaly.tools._kinds import kind_of
    except ImportError:
        from msprobe.response_anomaly.tools.gen_model_config import categorize_token, main

        def kind_of(text):
            return categorize_token(0, text, text).category

    else:
        main = None
    json.dump([kind_of(text) for text in ["", *texts()]], sys.stdout)
    if main is not None:
        main()
