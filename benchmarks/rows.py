"""A line of the table: one figure for one case and one way, compared with its bar."""

from dataclasses import asdict, dataclass, field

from intervals import interval, verdict

SCALES = {"us": 1e6, "ms": 1e3, "s": 1.0, "%": 100.0, "MB": 1e-6, "": 1.0}


@dataclass(frozen=True, kw_only=True)
class Row:
    way: str
    case: str
    what: str
    unit: str = ""
    median: float | None = None
    low: float | None = None
    high: float | None = None
    bar: float | None = None
    verdict: str = ""
    why: str = ""
    """Why there is no figure."""
    values: list[list[float]] = field(default_factory=list, repr=False)
    """Values of every pair of processes, in `unit`."""

    def __str__(self):
        if self.median is None:
            return f"  {self.way:16} {self.why}"
        shown = f"{self.median:+9.2f} [{self.low:+9.2f}, {self.high:+9.2f}] {self.unit:2}"
        bar = "" if self.bar is None else f"<= {self.bar:.3g} {self.unit}"
        return f"  {self.way:16} {self.what:50} {shown}  {bar:11} {self.verdict}".rstrip()


def row(way, case, what, groups, unit, bar=None):
    """Return a row from groups of values in seconds, bytes or shares; one group per pair of processes."""
    scale = SCALES[unit]
    scaled = [[scale * value for value in group] for group in groups]
    median, low, high = interval(scaled)
    bar = None if bar is None else bar * scale
    return Row(
        way=way,
        case=case,
        what=what,
        unit=unit,
        median=median,
        low=low,
        high=high,
        bar=bar,
        verdict="" if bar is None else verdict(scaled, low, high, bar),
        values=scaled,
    )


def missing(way, case, why):
    """Return the row of a case that was not measured."""
    return Row(way=way, case=case, what="everything", why=why)


def table(rows):
    """Return the rows by case, in the order in which the cases came, so that peers are next to us."""
    cases = dict.fromkeys(each.case for each in rows)
    return "\n".join(line for case in cases for line in ("", case, *(str(each) for each in rows if each.case == case)))


def as_json(rows):
    return [asdict(each) for each in rows]
