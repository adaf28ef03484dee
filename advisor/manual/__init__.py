"""The documents that are made from what they tell of. `python -m advisor.manual` writes all of them."""
