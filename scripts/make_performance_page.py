"""Write docs/performance.md and its figures from results/bench_*.json.

python scripts/make_performance_page.py
"""

from __future__ import annotations

from pathlib import Path

from geomatt.bench.page import learning, performance_page
from geomatt.bench.plot import curves_plot, scaling_plot
from geomatt.bench.result import read_result

ROOT = Path(__file__).parents[1]
PLOT, CURVES = "scaling.png", "learning.png"


def page() -> tuple[str, list[dict]]:
    """The page, and the results it is made from."""
    results = {
        f"results/{path.name}": read_result(path) for path in sorted((ROOT / "results").glob("bench_*.json"))
    }
    return performance_page(results, PLOT, CURVES), list(results.values())


def main() -> None:
    text, results = page()
    (ROOT / "docs" / "performance.md").write_text(text, encoding="utf-8")
    if any(result["scaling"] for result in results):
        scaling_plot(results, ROOT / "docs" / PLOT)
    if learned := learning(results):
        curves_plot(learned, ROOT / "docs" / CURVES)
    print(f"docs/performance.md from {len(results)} result files")


if __name__ == "__main__":
    main()
