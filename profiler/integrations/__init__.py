"""profile-train where people train: callbacks, trackers and a notebook magic, each on somebody else's package.

Import the one you need, as `from profiler.integrations.lightning import ProfileTrainCallback`. A recording that they
open means what `with profile()` means, and takes its options.
"""
