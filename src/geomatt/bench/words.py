"""Numbers of a result file as text, for the terminal and for the documentation."""

from __future__ import annotations

from statistics import median
from typing import Any

EXACTNESS = ("engine", "system", "precision", "against", "energy", "forces", "target")
SCALING = ("engine", "atoms", "neighbours", "time", "per atom", "memory per atom", "setup", "over floor")


def seconds(value: float) -> str:
    """A time with a suitable unit."""
    unit, factor = _unit(value)
    return f"{value * factor:.3g} {unit}"


def timing(entry: dict[str, Any]) -> str:
    """Median and quartiles."""
    unit, factor = _unit(entry["median"])
    low, high = (factor * q for q in entry["quartiles"])
    return f"{factor * entry['median']:.3g} {unit} ({low:.3g}–{high:.3g})"


def ratio(entry: dict[str, Any]) -> str:
    return f"{entry['median']:.3g}× ({entry['low']:.3g}–{entry['high']:.3g})"


def check(entry: dict[str, Any]) -> str:
    """A target with the value and whether it is met."""
    sign = "≤" if entry["at_most"] else "≥"
    unit = entry["unit"]
    space = "" if unit in ("", "×") else " "
    verdict = "met" if entry["met"] else "missed"
    value, goal = _plain(entry["value"]), _plain(entry["goal"])
    return f"{entry['what']} {sign} {goal}{space}{unit}: {value}{space}{unit}, {verdict}"


def kernels(entry: dict[str, Any]) -> str:
    count = entry["kernels"]
    return "–" if count is None else f"{count:.0f}" if count >= 10 else f"{count:.2g}"


def ceilings(result: dict[str, Any]) -> str:
    """The machine's ceilings in one phrase."""
    entry = result["ceilings"]
    if entry is None:
        return "not measured"
    text = f"{entry['matmul'] / 1e12:.3g} TFLOP/s in float32 products"
    if entry["split_matmul"]:
        gain = entry["split_matmul"] / entry["matmul"]
        text += f" (three bfloat16 products instead, on tensor cores, could be {gain:.2g} times faster)"
    text += f", {entry['copy'] / 1e9:.4g} GB/s in copies"
    if entry["denormal_slowdown"]:
        text += f"; a product of denormal numbers takes {entry['denormal_slowdown']:.2g} times as long"
    return text


def targets(result: dict[str, Any]) -> str:
    """The number of targets that are met, in words."""
    checks = [check for part in ("rows", "exactness") for entry in result[part] for check in entry["checks"]]
    checks += [result["curve_check"]] if result.get("curve_check") else []
    return f"{sum(check['met'] for check in checks)} of {len(checks)} met"


def curves(result: dict[str, Any]) -> str:
    """The last validation errors of two trainings, and how they compare."""
    said = [
        f"{c['name']} {c['energy'][-1]:.3g} {c['unit']} and {c['forces'][-1]:.3g} {c['unit']}/Å"
        for c in result["curves"]
    ]
    verdict = f"; {check(result['curve_check'])}" if result["curve_check"] else ""
    return f"validation errors after {len(result['curves'][0]['forces'])} epochs: {', '.join(said)}{verdict}"


def machine_line(result: dict[str, Any]) -> str:
    """The machine, versions, date and commit."""
    m = result["machine"]
    versions = ", ".join(f"{name} {number}" for name, number in m["versions"].items())
    commit = m["commit"][:12] if m["commit"] else "unknown"
    host = "" if m["hardware"] == m["processor"] else f" (host: {m['processor']})"
    return (
        f"{m['hardware']}{host}, {m['cores']} cores, {m['memory_GiB']} GiB memory, {m['system']}; "
        f"Python {m['python']}, {versions}; geomatt {m['geomatt']}"
        f"{', its C++ compiled here' if m.get('native') else ''}, commit {commit}; {result['date']}"
    )


def row(entry: dict[str, Any]) -> dict[str, str]:
    """The cells of a measurement, by name."""
    ours, baseline = entry["ours"], entry["baseline"]
    return {
        "what": entry["what"],
        "measured": ours["name"],
        "time": timing(ours),
        "baseline": baseline["name"],
        "its time": timing(baseline),
        "faster by": ratio(entry["ratio"]),
        "over floor": "–" if entry["floor"] is None else _times(entry["floor"]["times"]),
        "kernels": kernels(ours),
    }


def exactness(entry: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a row under EXACTNESS."""
    checks, errors = entry["checks"], (f"{entry[kind]:.1e}" for kind in ("energy", "forces"))
    target = "–"
    if checks:
        verdict = "met" if all(c["met"] for c in checks) else "missed"
        target = f"≤ {checks[0]['goal']:.0e}: {verdict}"
    return (_engine(entry), entry["system"], entry["dtype"], entry["reference"], *errors, target)


def scaling(point: dict[str, Any]) -> tuple[str, ...]:
    """The cells of a row under SCALING."""
    time, atoms, memory = median(point["seconds"]), point["atoms"], point["memory"]
    return (
        _engine(point),
        f"{atoms:,}",
        f"{point['pairs']:.0f}",
        seconds(time),
        seconds(time / atoms),
        "–" if memory is None else f"{_plain(memory / atoms / 1024)} KiB",
        seconds(point["setup_seconds"]) if point["setup_seconds"] else "–",
        "–" if point["floor_times"] is None else _times(point["floor_times"]),
    )


def _engine(entry: dict[str, Any]) -> str:
    """The engine, after the network where the file names it."""
    return " ".join(filter(None, (entry.get("model"), entry["path"])))


def _times(value: float) -> str:
    return f"{_plain(value)}×"


def _plain(value: float) -> str:
    """Three digits, or all digits before the point; never a power of ten."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _unit(value: float) -> tuple[str, float]:
    """The unit of time for a value in seconds, and its factor."""
    units = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
    return next(((unit, factor) for unit, factor in units if value * factor >= 1), ("ns", 1e9))
