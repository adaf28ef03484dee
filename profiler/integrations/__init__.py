"""Integrations with training frameworks: callbacks, trackers and a notebook magic.

Each integration is for one package. Import the one you need, as in
`from profiler.integrations.lightning import ProfileTrainCallback`. Its recording works like `with profile()` and takes
the same options.
"""
