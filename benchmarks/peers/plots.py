"""Bar charts and curves as SVG, without a drawing library."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from peers.measure import Result

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 640, 130, 90, 22, 10, 34
OURS, OTHERS = "#1f6feb", "#8b949e"


def draw(results: list[Result], folder: Path) -> None:
    """Write one file per measure."""
    measures: dict[str, tuple[str, Callable[[Result], float], str]] = {
        "rate": ("Records per second, catching up (more is better)", lambda r: r.records_per_second, ",.0f"),
        "cpu": ("CPU seconds per million records (less is better)", lambda r: r.cpu_seconds_per_million, ".1f"),
        "memory": ("Resident memory at its peak, MB (less is better)", lambda r: r.peak_rss_mb, ",.0f"),
        "freshness": (
            "Seconds until a reader sees 200 new records, median (less is better)",
            lambda r: r.freshness_seconds[len(r.freshness_seconds) // 2],
            ".1f",
        ),
    }
    for name, (title, value, format_) in measures.items():
        values = [(result.contender, value(result)) for result in results]
        (folder / f"against_peers_{name}.svg").write_text(bars(title, values, format_))


def bars(title: str, bars: list[tuple[str, float]], format_: str, highlighted: int = 1) -> str:
    """Return a bar chart of names and values, the first `highlighted` of them in this project's colour."""
    most = max(value for _, value in bars) or 1
    height = TOP + len(bars) * (BAR + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for number, (name, value) in enumerate(bars):
        y, length = TOP + number * (BAR + GAP), (WIDTH - LEFT - RIGHT) * value / most
        text, colour = f'y="{y + BAR * 0.7:.0f}" font-size="13"', OURS if number < highlighted else OTHERS
        lines += [
            f'<text x="{LEFT - 8}" {text} text-anchor="end">{escape(name)}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LEFT + length + 6:.1f}" {text}>{value:{format_}}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def curve(title: str, along: str, xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return a line chart from zero, with the highest value as label."""
    height, bottom = 220, 190
    most, last = max(ys) or 1, max(xs) or 1
    points = " ".join(
        f"{LEFT + (WIDTH - LEFT - RIGHT) * x / last:.1f},{bottom - (bottom - TOP) * y / most:.1f}"
        for x, y in zip(xs, ys, strict=True)
    )
    end = WIDTH - RIGHT
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            f'<text x="8" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
            f'<path d="M{LEFT},{TOP} V{bottom} H{end}" fill="none" stroke="{OTHERS}"/>',
            f'<text x="{LEFT - 8}" y="{TOP + 5}" font-size="13" text-anchor="end">{most:,.0f}</text>',
            f'<text x="{LEFT - 8}" y="{bottom}" font-size="13" text-anchor="end">0</text>',
            f'<text x="{end}" y="{bottom + 18}" font-size="13" text-anchor="end">{last:,.0f} {along}</text>',
            f'<polyline points="{points}" fill="none" stroke="{OURS}" stroke-width="2"/>',
            "</svg>",
            "",
        ]
    )
