"""Build wheel and sdist, install the wheel into a fresh environment, and try it there.

    python scripts/check_package.py [INTERPRETER ...]

The environment is new but borrows the installed dependencies of the one that runs this script, so that
nothing large is downloaded. It has no C++ compiler: the package must work without one. With interpreters
(python3.12, /path/to/python3.13 ...) the wheel is also installed with its dependencies into a new environment
of each, which downloads gigabytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LARGEST_MB = 70
NEEDED = (
    "py.typed",
    "pages/static/page.html",
    "pages/static/explorer.js",
    "data/public/embedded/ethanol.npz",
)
XYZ = "3\nwater\nO 0 0 0\nH 0.96 0 0\nH -0.24 0.93 0\n"
TRAIN = (
    "train embedded/ethanol --out run --train 20 --val 5 --test 5 --epochs 1 --model geomatt "
    "--features 8 --overlap-features 16"
)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "source"
        shutil.copytree(ROOT, source, ignore=_ignored)
        build = [
            sys.executable,
            "-m",
            "build",
            "--no-isolation",
            "--outdir",
            str(folder / "dist"),
            str(source),
        ]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
        (wheel,), (sdist,) = (list((folder / "dist").glob(f"*{s}")) for s in (".whl", ".tar.gz"))
        for path in (wheel, sdist):
            size = path.stat().st_size / 1e6
            print(f"{path.name}: {size:.1f} MB")
            if size > LARGEST_MB:
                sys.exit(f"{path.name} is larger than {LARGEST_MB} MB.")
        inside = zipfile.ZipFile(wheel).namelist()
        if missing := [n for n in NEEDED if f"geomatt/{n}" not in inside]:
            sys.exit(f"The wheel lacks {missing}.")
        home = folder / "environment"
        borrowing_environment(wheel, home)
        try_wheel(home, folder)
        for interpreter in sys.argv[1:]:
            shutil.rmtree(home)
            complete_environment(wheel, home, interpreter)
            try_wheel(home, folder)


def borrowing_environment(wheel: Path, home: Path) -> None:
    """A new environment with the wheel, and the dependencies of this one."""
    venv.create(home, with_pip=True)
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    subprocess.run([home / "bin" / "python", *install], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    borrowed = home / "lib" / version / "site-packages" / "borrowed.pth"
    borrowed.write_text(sysconfig.get_paths()["purelib"] + "\n")


def complete_environment(wheel: Path, home: Path, interpreter: str) -> None:
    """A new environment of an interpreter, with the wheel and all it needs."""
    subprocess.run([interpreter, "-m", "venv", str(home)], check=True)
    constraints = str(ROOT / "constraints.txt")
    install = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "-c", constraints, str(wheel)]
    subprocess.run([home / "bin" / "python", *install], check=True)


def try_wheel(home: Path, folder: Path) -> None:
    """Use the commands of an environment, outside of the source tree."""
    python = home / "bin" / "python"
    place = folder / "work"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    (place / "water.xyz").write_text(XYZ)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    environment = {
        **clean,
        "GEOMATT_CACHE": str(folder / "cache"),
        "CXX": "no-compiler",
        "OMP_NUM_THREADS": "1",
    }

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}\n{done.stderr}")
        return done.stdout

    where = run(str(python), "-c", "import geomatt; print(geomatt.__file__)").strip()
    if not where.startswith(str(home)):
        sys.exit(f"The package was imported from {where}, not from the wheel.")
    geomatt = str(home / "bin" / "geomatt")
    versions = (
        "import platform, torch; print('Python', platform.python_version(), 'torch', torch.__version__)"
    )
    print(run(geomatt, "--version").strip(), run(str(python), "-c", versions).strip(), sep=", ")
    run(geomatt, "models")
    run(geomatt, *TRAIN.split())
    run(geomatt, "explain", "md17/ethanol:fast", "water.xyz", "-o", "page.html", "--untrained", "0")
    for made in ("run/model.safetensors", "run/report.html", "page.html"):
        if not (place / made).is_file():
            sys.exit(f"{made} was not written.")
    print("installed from the wheel: version, models, train and explain work")


def _ignored(folder: str, names: list[str]) -> list[str]:
    unwanted = {".git", ".venv", "site", "build", "dist", "runs", "geomatt-demo", "scratch", "__pycache__"}
    return [n for n in names if n in unwanted or n.endswith(".egg-info") or n.startswith(".mypy")]


if __name__ == "__main__":
    main()
