"""Format numbers for readers: three significant digits and a unit."""

import math
from collections.abc import Sequence
from datetime import datetime, timezone


def share(value: float) -> str:
    """Return a share in percent: 0.614 as "61%", 0.0041 as "0.4%", below a thousandth "under 0.1%"."""
    percent = 100 * value
    if 0 < abs(percent) < 0.1:
        return "under 0.1%" if percent > 0 else "above -0.1%"
    return f"{percent:.1f}%" if abs(percent) < 9.95 and round(percent, 1) % 1 else f"{percent:.0f}%"


def span(low: float, high: float) -> str:
    """Return an interval of shares: "40 to 62%"; one number if both read the same."""
    first, last = share(low), share(high)
    return last if first == last else f"{first.removesuffix('%')} to {last}"


def seconds(value: float) -> str:
    """Return a duration: 0.1048 as "105 ms", 4000 as "1 h 7 min"."""
    if not math.isfinite(value):
        return f"{digits(value)} s"
    size = abs(value)
    if size >= 3600:
        hours, minutes = divmod(round(value / 60), 60)
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if size >= 120:
        minutes, rest = divmod(round(value), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    if size >= 1 or size == 0:
        return f"{digits(value)} s"
    return f"{digits(1e3 * value)} ms" if size >= 1e-3 else f"{digits(1e6 * value)} us"


def size(value: float) -> str:
    """Return bytes in powers of 1024: 16777216 as "16 MiB"."""
    step = min(int(math.log(abs(value), 1024)), 4) if 1 <= abs(value) < math.inf else 0
    return f"{digits(value / 1024**step)} {('B', 'KiB', 'MiB', 'GiB', 'TiB')[step]}"


def money(value: float) -> str:
    """Return an amount in the user's own currency, without the currency's symbol."""
    return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"


def digits(value: float) -> str:
    """Return three significant digits without trailing zeros."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def utc(unix: float | None) -> str:
    """Return a Unix time as "2026-01-31 23:59", UTC; empty if it is None or out of range."""
    try:
        return "" if unix is None else datetime.fromtimestamp(unix, timezone.utc).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):
        return ""


def count(number: int, one: str) -> str:
    """Return a count with its noun: "1 step" or "1,200 steps"."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


def ordinal(number: int) -> str:
    """Return an ordinal: 1st, 2nd, 3rd, 4th, 11th."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def inline(text: str) -> str:
    """Return a label, title or sentence for use within a sentence; an acronym keeps its capitals."""
    return text if text[1:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def listed(words: Sequence[str]) -> str:
    """Join words as "a, b and c"."""
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def quantity(value: float, unit: str | None) -> str:
    """Return a metric's value with its unit; "1" is a share from 0 to 1, else a plain ratio."""
    match unit:
        case "1":
            return share(value) if 0 <= value <= 1 and value != int(value) else digits(value)
        case "s":
            return seconds(value)
        case "B":
            return size(value)
        case "B/s":
            return f"{size(value)}/s"
        case "FLOP/s":
            return f"{digits(value / 1e12)} TFLOP/s"
        case None | "" | "count":
            return digits(value)
        case _:
            return f"{digits(value)} {unit}"
