"""Settings for property tests of models: their examples are quick, but a busy machine may stall in any of them."""

from hypothesis import settings

settings.register_profile("stalls are no failures", deadline=None)
settings.load_profile("stalls are no failures")
