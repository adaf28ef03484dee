"""Results as text, Markdown and JSON."""

import json
from collections import Counter
from dataclasses import asdict, dataclass

from peers import Peer
from scores import Bar, RowResult
from seen import is_hit

HEAD = ("row", "must come first", "came first", "right", "must not be", "predicted", "measured")
PEER_HEAD = ("tool", "sick rows", "right first", "healthy rows", "alarms", "note")
BAR_HEAD = ("bar", "found", "wanted", "of", "verdict")


@dataclass(frozen=True)
class Found:
    about: dict
    results: list[RowResult]
    bars: list[Bar]
    gpu: list[RowResult]
    gpu_bars: list[Bar]
    peers: list[Peer]


def row_cells(each):
    """Return one row of the table."""
    expected = ", then ".join(each.row.order) or "nothing"
    if each.skipped:
        return (each.row.id, expected, f"skipped: {each.skipped}", "", "", "", "")
    if not each.runs:
        return (each.row.id, expected, f"failed: {each.failed}" if each.failed else "not run", "", "", "", "")
    firsts = Counter(_firsts(run, len(each.row.order)) for run in each.runs)
    came = "; ".join(f"{first} ({count} x)" if len(firsts) > 1 else first for first, count in firsts.most_common())
    forbidden = sorted({rule for found in each.forbidden for rule in found})
    low, expected_gain, high = each.predicted if each.predicted else (None, None, None)
    return (
        each.row.id,
        expected,
        came + (f" [{each.again} taken again]" if each.again else "") + (f" [{each.failed}]" if each.failed else ""),
        f"{each.hits} of {len(each.runs)}",
        ", ".join(forbidden),
        "" if low is None else f"{low:.0%} / {expected_gain:.0%} / {high:.0%}",
        _measured(each),
    )


def _firsts(run, number):
    order = run.order if number else run.above
    came = ", then ".join(order[: max(1, number)]) or "nothing"
    held_back = run.scattered and not (number and run.above)
    return f"{came} (scattered)" if held_back else came


def _measured(each):
    if each.record is None:
        return ""
    return f"{each.measured:.0%} {'inside' if each.record.inside else 'outside'}"


def bar_cells(bar):
    shown = "{:.0%}" if isinstance(bar.bar, float) else "{:d}"
    wanted = f"{'>=' if bar.at_least else '<='} {shown.format(bar.bar)}"
    return (bar.name, shown.format(bar.value) if bar.of else "", wanted, str(bar.of), bar.verdict)


def peer_cells(peer):
    sick, healthy = (
        [each for each in peer.results if each.row.healthy is kind and each.runs] for kind in (False, True)
    )
    right = sum(is_hit(each.row, each.runs[0], number=1) for each in sick)
    alarms = sum(bool(each.runs[0].above) for each in healthy)
    return (
        peer.name,
        str(len(sick)),
        f"{right} ({right / len(sick):.0%})" if sick else "",
        str(len(healthy)),
        str(alarms) if healthy else "",
        peer.why,
    )


def _tables(found):
    yield "Rows", HEAD, [row_cells(each) for each in found.results]
    yield "Bars", BAR_HEAD, [bar_cells(bar) for bar in found.bars]
    if found.gpu:
        yield "GPU rows", HEAD[:5], [row_cells(each)[:5] for each in found.gpu]
        yield "Bars of the GPU rows", BAR_HEAD, [bar_cells(bar) for bar in found.gpu_bars]
    if found.peers:
        yield "The same rows, other tools", PEER_HEAD, [peer_cells(peer) for peer in found.peers]
        ran = [peer for peer in found.peers if peer.results]
        said = {(peer.name, each.row.id): each for peer in ran for each in peer.results}
        rows = [each.row for each in ran[0].results] if ran else []
        head = ("row", "must come first", *(peer.name for peer in ran))
        yield (
            "What they said",
            head,
            [
                (row.id, row.order[0] if row.order else "nothing", *(_said(said[peer.name, row.id]) for peer in ran))
                for row in rows
            ],
        )


def _said(each):
    if each.skipped or not each.runs:
        return each.skipped or each.failed or "not run"
    run = each.runs[0]
    first = run.above[:1] if each.row.healthy else run.order[:1]
    return f"{run.said} ({first[0]})" if first else "nothing"


def _about(found):
    about = found.about
    load = " to ".join(f"{each[0]:.1f}" for each in (about["load_before"], about["load_after"]))
    return f"{about['cores']} cores, load {load}, torch {about['torch']}, {about['seconds'] / 60:.0f} minutes"


def text(found):
    """Return the tables for a terminal."""
    parts = []
    for title, head, rows in _tables(found):
        widths = [max(len(line[column]) for line in (head, *rows)) for column in range(len(head))]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in (head, *rows)
        )
        parts.append("\n".join([title, *(f"  {line}".rstrip() for line in lines)]))
    return "\n\n".join([*parts, _about(found)])


TITLE = """\
# How often the advice is right

Each row is a training program with a known problem, or without one. The tables show whether the right advice comes
first, whether healthy programs get no advice, and whether the measured gain lies in the predicted interval. Generated
by `python benchmarks/truth/truth.py --peers FOLDER --markdown docs/truth.md`; limits that are not met are listed as
well."""


def markdown(found):
    """Return the tables for the documentation."""
    parts = [TITLE]
    for title, head, rows in _tables(found):
        lines = [head, tuple("---" for _ in head), *rows]
        parts.append("\n".join([f"## {title}", "", *(f"| {' | '.join(map(_escaped, line))} |" for line in lines)]))
    return "\n\n".join([*parts, f"Measured on {_about(found)}."]) + "\n"


def _escaped(cell):
    return cell.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def as_json(found):
    """Return everything, including every run."""

    def one(each):
        return {
            **asdict(each),
            "right": each.hits,
            "forbidden": each.forbidden,
            "predicted": each.predicted,
            "measured": each.measured,
        }

    document = {
        "about": found.about,
        "rows": [one(each) for each in found.results],
        "bars": [{**asdict(bar), "verdict": bar.verdict} for bar in found.bars],
        "gpu": [one(each) for each in found.gpu],
        "gpu_bars": [{**asdict(bar), "verdict": bar.verdict} for bar in found.gpu_bars],
        "peers": [
            {"name": peer.name, "why": peer.why, "rows": [one(each) for each in peer.results]} for peer in found.peers
        ],
    }
    return json.dumps(document, indent=1) + "\n"
