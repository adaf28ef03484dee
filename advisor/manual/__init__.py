"""Generate documents from the code they describe; `python -m advisor.manual` writes all of them."""
