"""Peak memory of one evaluation on a processor, in a process of its own: `python -m geomatt.bench.memory`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

from geomatt.bench.scaling import build
from geomatt.bench.settings import Settings


def peak_bytes() -> float:
    """The most memory this process ever held."""
    try:  # getrusage would count the parent's memory too, which Linux carries over
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("VmHWM:"):
                return 1024.0 * int(line.split()[1])
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) if sys.platform == "darwin" else 1024.0 * peak


def main() -> None:
    arguments = json.loads(sys.argv[1])
    settings = Settings(**arguments["settings"])
    build(settings, arguments["path"], 2).run()  # libraries take their share before the count begins
    case = build(settings, arguments["path"], arguments["atoms"])
    before = peak_bytes()
    case.run()
    print(peak_bytes() - before)


if __name__ == "__main__":
    main()
