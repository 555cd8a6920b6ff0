"""Program that converts a file of any ASE format to an ASE trajectory, with limited memory and time.

Most parsers of ASE allocate what a file claims to contain, and some never end on a damaged file, so they
run in a process that can be stopped.
"""

import sys
from pathlib import Path


def main(source: str, kind: str, target: str, memory: int, seconds: int) -> None:
    from ase.io import iread
    from ase.io.trajectory import Trajectory

    _limit(memory, seconds)
    count = 0
    try:
        with Trajectory(target, "w") as trajectory:
            for atoms in iread(source, format=kind, do_not_split_by_at_sign=True):
                trajectory.write(atoms)
                count += 1
    except Exception as error:  # parsers raise any kind of error
        reason = str(error) or type(error).__name__
        sys.exit(f"structure {count + 1}: {reason}")


def _limit(extra: int, seconds: int) -> None:
    """Allow `extra` bytes and `seconds` of computing more than so far, where the system can tell."""
    status = Path("/proc/self/statm")
    if status.is_file():
        import resource

        limit = int(status.read_text().split()[0]) * resource.getpagesize() + extra
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        end = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2])) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (end, end + 5))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
