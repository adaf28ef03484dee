"""Shift the clock of a pytest run that loads this plugin (`-p other_clock`) by somewhat more than 100 days."""

import time

SHIFT = 100 * 86400 + 12345.678
_time, _time_ns = time.time, time.time_ns

time.time = lambda: _time() + SHIFT
time.time_ns = lambda: _time_ns() + int(SHIFT * 1e9)
