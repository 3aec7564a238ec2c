"""Series that only some models have: attention, experts, tokens, and what is made of weights (``model_series``)."""
