"""Integrations with training frameworks: callbacks, trackers and a notebook magic.

Each of them is for another package. Import the one you need, as in
`from profiler.integrations.lightning import ProfileTrainCallback`. A recording that they open works like
`with profile()` and takes the same options.
"""
