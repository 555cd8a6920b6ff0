"""A client of i-PI, or of any other server that speaks its protocol, such as ASE's `SocketIOCalculator`."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from geomatt.errors import GeomAttError
from geomatt.simulation.calculator import GeomAttCalculator
from geomatt.simulation.engines.moved_atoms import MovedAtoms
from geomatt.simulation.inputs import Model

PORT = 31415  # i-PI's default
UNIX = "/tmp/ipi_"  # where i-PI and ASE put their Unix sockets, followed by a name


def run_client(
    model: Model | GeomAttCalculator,
    atoms: Any,
    *,
    unix: str | None = None,
    host: str = "localhost",
    port: int = PORT,
    wait: float = 60.0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | str | None = None,
    walls: bool = True,
    progress: Callable[[int], None] | None = None,
) -> GeomAttCalculator:
    """Compute energies, forces and the virial for a server until it ends the simulation.

    Args:
        model: what `GeomAttCalculator` takes, or such a calculator.
        atoms: ASE Atoms or a `Structure` in the order of the server's atoms; its positions do not matter.
            The server's cell is used in the directions in which they are periodic, and the total charge and
            multiplicity are those of `atoms`.
        unix: name of a Unix socket, as `<address>` in i-PI's input. Otherwise `host` and `port` are used.
        wait: seconds to wait for a server that has not started yet.
        device, dtype, walls: see `GeomAttCalculator`.
        progress: called with 1 after every calculation.

    Returns:
        The calculator, which tells `wall_steps` and the spread of a committee.
    """
    from ase.calculators.socketio import IPIProtocol, SocketClosed

    moved = MovedAtoms(model, atoms, device=device, dtype=dtype, walls=walls)
    with _connect(unix, host, port, wait) as connection:
        server, ready = IPIProtocol(connection), None
        try:
            while (message := server.recvmsg()) != "EXIT":
                if message == "STATUS":
                    server.sendmsg("HAVEDATA" if ready else "READY")
                elif message == "INIT":
                    server.recvinit()
                elif message == "POSDATA":
                    ready = _compute(moved, *_positions(server))
                elif message == "GETFORCE" and ready:
                    server.sendforce(*ready)
                    ready = None
                    if progress is not None:
                        progress(1)
                else:
                    raise GeomAttError(f"The server sent {message!r} out of turn: is it an i-PI server?")
        except (SocketClosed, ConnectionError):
            pass  # a server that has finished may leave without a word
    return moved.calculator


def ipi_forcefield(
    model: str | os.PathLike[str],
    template: str | os.PathLike[str],
    *,
    beads: int,
    name: str = "geomatt",
    device: str = "cpu",
    dtype: str | None = None,
    walls: bool = True,
) -> str:
    """Input for i-PI with which it evaluates all `beads` of a path integral at once, in its own process.

    The XML takes the place of `<ffsocket>`. `template` is a file whose first structure has the atoms in
    i-PI's order; the other arguments are those of `run_client`.
    """
    given = {"model": model, "template": template, "device": device, "dtype": dtype, "walls": walls}
    parameters = {key: str(value) for key, value in given.items() if value is not None}
    wrong = [value for value in parameters.values() if set(value) & set(",{}<>&")]
    if wrong:
        raise GeomAttError(
            f"i-PI's input cannot hold the name {wrong[0]!r}. Rename it without , {{ }} < > &."
        )
    listed = ", ".join(f"{key}: {value}" for key, value in parameters.items())
    path = Path(__file__).with_name("ipi_beads.py")
    return (
        f"<ffdirect name='{name}' pbc='false'> <pes> custom </pes> <pes_path> {path} </pes_path> "
        f"<batch_size> {beads} </batch_size> <parameters> {{ {listed} }} </parameters> </ffdirect>"
    )


def _positions(server: Any) -> tuple[np.ndarray, np.ndarray]:
    """Cell and positions from the server, in Å."""
    try:
        cell, _, positions = server.recvposdata()
    except AssertionError as error:
        raise GeomAttError(
            "The server sent positions that are not finite numbers: the simulation has probably diverged."
        ) from error
    return cell, positions


def _compute(
    moved: MovedAtoms, cell: np.ndarray, positions: np.ndarray
) -> tuple[float, np.ndarray, np.ndarray]:
    """Energy (eV), forces (eV/Å) and virial (eV)."""
    if len(positions) != len(moved):
        raise GeomAttError(
            f"The server moves {len(positions)} atoms, the structure given has {len(moved)}. Give both the "
            "same structure."
        )
    periodic = moved.atoms.pbc.any()
    found = moved.evaluate(positions, cell if periodic else None)
    virial = np.zeros((3, 3))
    if "stress" in found:
        xx, yy, zz, yz, xz, xy = found["stress"]
        virial = -moved.atoms.get_volume() * np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    return found["energy"], found["forces"], virial


class _Prompt(socket.socket):
    """A socket that sends and acknowledges at once: TCP waits 40 ms for more, several times per step."""

    def recv(self, *arguments: Any) -> bytes:
        if self.family == socket.AF_INET:
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_QUICKACK"):  # on Linux, until the next receive
                self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return super().recv(*arguments)


def _connect(unix: str | None, host: str, port: int, wait: float) -> socket.socket:
    """A connection to the server, tried until it is there."""
    address: Any = f"{UNIX}{unix}" if unix else (host, port)
    end = time.monotonic() + wait
    while True:
        connection = _Prompt(socket.AF_UNIX if unix else socket.AF_INET)
        try:
            connection.connect(address)
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() > end:
                where = address if unix else f"{host}:{port}"
                raise GeomAttError(
                    f"No server answers at {where} ({error.strerror or error}). Start i-PI first, and give "
                    "the address of its input."
                ) from error
        time.sleep(0.05)
