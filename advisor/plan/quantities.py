"""Read amounts as people write them on a command line, and format bytes: GB is 1e9 bytes, GiB 1024^3.

Each reader raises ValueError with a sentence that says what is wrong and how to write it.
"""

import math
import re

_NUMBER = r"(\d[\d_,]*\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)"
_AMOUNT = re.compile(rf"\s*{_NUMBER}\s*([a-z/%]*)\s*", re.IGNORECASE)
_TIME = re.compile(rf"{_NUMBER}\s*([a-z]+)\s*", re.IGNORECASE)

_COUNTS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_DECIMAL = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BINARY = {"kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3, "tib": 1024.0**4}
# Units of memory as it is sold: a module's "GB" is 1024^3 bytes.
_MODULE = (
    _DECIMAL | {"kb": 1024.0, "mb": 1024.0**2, "gb": 1024.0**3, "tb": 1024.0**4} | {"g": 1024.0**3, "t": 1024.0**4}
)
_TIMES = {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "hr": 3600.0, "d": 86400.0}

# Least number without a unit that counts as bytes.
_LEAST_BYTES = 1e6


def count(text: str) -> float:
    """Return a number of parameters: "1.5B", "350M", "7.5e9"."""
    number, unit = _amount(text, 'Write "1.5B", "350M" or "7.5e9".')
    if unit not in _COUNTS:
        raise ValueError(f'The unit of {text!r} is not recognized. Write "1.5B", "350M" or "7.5e9".')
    return float(round(_positive(number * _COUNTS[unit], text)))


def size(text: str) -> float:
    """Return bytes: "1.2GB" is 1.2e9, "1.2GiB" more; a bare number is bytes."""
    return _bytes(text, _DECIMAL)


def capacity(text: str) -> float:
    """Return bytes of a memory that is sold by size: "24GB" is 24 x 1024^3.

    "24GiB" is the same; NVML counts the card this way.
    """
    return _bytes(text, _MODULE)


def rate(text: str) -> float:
    """Return bytes per second from "25GB/s" or "25GB"."""
    return _bytes(re.sub(r"/s\s*$", "", text, flags=re.IGNORECASE), _DECIMAL, written="25GB/s")


def seconds(text: str) -> float:
    """Return seconds from "20s", "5m", "2h", "1.5d" or "1h30m"."""
    parts = _TIME.findall(text.strip())
    if not parts or _TIME.sub("", text.strip()) or any(unit.lower() not in _TIMES for _, unit in parts):
        raise ValueError(f'{text!r} is not a time. Write it with its unit: "20s", "5m", "2h" or "1h30m".')
    return _positive(sum(_number(number) * _TIMES[unit.lower()] for number, unit in parts), text)


def duration(text: str) -> float:
    """Return seconds in the same forms; a number without a unit is seconds: "90"."""
    return seconds(f"{text}s" if re.fullmatch(_NUMBER, text.strip()) else text)


def share(text: str) -> float:
    """Return a share from "65%" or "0.65"."""
    number, unit = _amount(text, 'Write "65%" or "0.65".')
    if unit not in ("", "%"):
        raise ValueError(f'{text!r} is not a share. Write "65%" or "0.65".')
    value = number / 100 if unit else number
    if value > 1:
        raise ValueError(f'{text!r} is more than 100%. Write a share up to 100%, such as "65%" or "0.65".')
    return value


def peak(text: str) -> tuple[int, float]:
    """Return a measured peak: "8:21GB" is 21e9 bytes with 8 samples in a micro-batch."""
    batch, colon, amount = text.partition(":")
    if not colon or not batch.strip().isdecimal() or int(batch) < 1:
        raise ValueError(f'{text!r} is not a measured peak. Write the micro-batch, a colon and its peak: "8:21GB".')
    return int(batch), size(amount)


def gb(value: float) -> str:
    """Return bytes in GB of 1e9, with two decimals below 1000 GB and none from there on."""
    amount = value / 1e9
    return f"{amount:,.2f}" if abs(amount) < 1000 else f"{amount:,.0f}"


def in_gb(value: float) -> str:
    """Return the same with its unit."""
    return f"{gb(value)} GB"


def parameters(value: float) -> str:
    """Return a number of parameters: 1.5e9 as "1.5B"."""
    for scale, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "K")):
        if value >= scale:
            return f"{value / scale:.4g}{unit}"
    return f"{value:.4g}"


def _bytes(text: str, units: dict[str, float], written: str = "24GB") -> float:
    number, unit = _amount(text, f'Write it with its unit: "{written}".')
    if not unit and number >= _LEAST_BYTES:
        return number
    units = units | _BINARY
    if unit not in units:
        raise ValueError(f'The unit of {text!r} is not recognized. Write it with one: "{written}", in GB or GiB.')
    return float(round(_positive(number * units[unit], text)))


def _amount(text: str, remedy: str) -> tuple[float, str]:
    """Return the number and the lower-case unit."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount. {remedy}")
    return _number(match[1]), match[2].lower()


def _number(text: str) -> float:
    return float(text.replace(",", "").replace("_", ""))


def _positive(value: float, text: str) -> float:
    if not 0 < value < math.inf:
        raise ValueError(f"{text!r} is not a positive amount. Give one above zero.")
    return value
