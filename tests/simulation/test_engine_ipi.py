"""i-PI and ASE's socket server: the results and dynamics of ASE through a socket, and invalid input."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from ase import units
from ase.calculators.socketio import IPIProtocol, SocketIOCalculator
from ase.md.verlet import VelocityVerlet
from engine_molecule import OUTSIDE, STEPS, TIMESTEP, other_element, periodic, reference

from geomatt import GeomAttCalculator, GeomAttError
from geomatt.simulation.engines import run_client

has_ipi = pytest.mark.skipif(
    importlib.util.find_spec("ipi") is None, reason="i-PI is not installed (pip install 'geomatt[ipi]')"
)
INPUT = """<simulation verbosity='quiet'>
<output prefix='out'>
<properties stride='{steps}' filename='energies'> [ potential ] </properties>
<trajectory stride='{steps}' filename='positions' format='ase'> positions{{ase}} </trajectory>
</output>
<total_steps> {steps} </total_steps>
<ffsocket name='geomatt' mode='unix' pbc='false'> <address> {name} </address> </ffsocket>
<system>
<initialize nbeads='1'>
<file mode='ase' units='ase'> start.extxyz </file>
</initialize>
<forces> <force forcefield='geomatt'/> </forces>
<ensemble> <temperature units='kelvin'> 300 </temperature> </ensemble>
<motion mode='dynamics'>
<fixcom> False </fixcom>
<dynamics mode='nve'> <timestep units='femtosecond'> {timestep} </timestep> </dynamics>
</motion>
</system>
</simulation>"""


@has_ipi
@pytest.mark.filterwarnings(OUTSIDE)
def test_dynamics_in_ipi_is_that_of_ase(tmp_path):
    import ase.io

    known = reference()
    name = f"geomatt_{os.getpid()}"
    text = INPUT.format(steps=STEPS, name=name, timestep=TIMESTEP)
    (tmp_path / "input.xml").write_text(text)
    start = known.start.copy()
    start.positions += 10.0 - start.positions.mean(0)
    start.pbc = True  # i-PI has a cell; the client decides what it means
    ase.io.write(tmp_path / "start.extxyz", start, columns=["symbols", "positions"])
    written = ase.io.read(tmp_path / "start.extxyz")
    program = Path(sys.executable).with_name("i-pi")
    server = subprocess.Popen([sys.executable, program, "input.xml"], cwd=tmp_path, stdout=subprocess.DEVNULL)
    try:
        calculator = run_client(known.potential, known.start, unix=name)
        assert server.wait(20) == 0
    finally:
        server.kill()
    energies = units.Ha * np.loadtxt(tmp_path / "out.energies")
    assert energies[0] == pytest.approx(known.energy, rel=1e-8)  # the digits that i-PI writes
    end = ase.io.read(tmp_path / "out.positions_0.extxyz", index=-1)
    np.testing.assert_allclose(
        end.positions - written.positions + known.start.positions, known.end, atol=1e-5
    )
    assert calculator.wall_steps == known.wall_steps


def serve(atoms, use, **options):
    """Run `use` on atoms whose forces come from a client in a thread; returns what the client returned."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    found = []
    client = threading.Thread(
        target=lambda: found.append(run_client(atoms=atoms.copy(), port=port, **options)), daemon=True
    )
    with SocketIOCalculator(port=port) as calculator:
        client.start()
        atoms.calc = calculator
        use(atoms)
    client.join(20)
    return found[0]


@pytest.mark.filterwarnings(OUTSIDE)
def test_dynamics_with_ases_socket_server():
    known, counted = reference(), []
    atoms = known.start.copy()

    def dynamics(atoms):
        assert atoms.get_potential_energy() == pytest.approx(known.energy, abs=1e-5)
        np.testing.assert_allclose(atoms.get_forces(), known.forces, atol=1e-5)
        VelocityVerlet(atoms, TIMESTEP * units.fs).run(STEPS)

    calculator = serve(atoms, dynamics, model=known.potential, progress=counted.append)
    np.testing.assert_allclose(atoms.positions, known.end, atol=1e-5)
    assert calculator.wall_steps == known.wall_steps
    assert sum(counted) == STEPS + 1


def test_cell_and_virial_go_through_the_socket():
    potential, atoms = periodic()
    atoms = atoms.copy()
    expected = atoms.copy()
    expected.calc = GeomAttCalculator(potential)
    stress = []
    serve(atoms, lambda a: stress.append(a.get_stress()), model=potential)
    np.testing.assert_allclose(stress[0], expected.get_stress(), atol=1e-9)


def against(script, model, atoms):
    """Run the client against a server that says what `script` does with the protocol."""
    listener = socket.socket()
    listener.bind(("localhost", 0))
    listener.listen()

    def talk():
        connection, _ = listener.accept()
        with connection:
            script(IPIProtocol(connection))

    server = threading.Thread(target=talk, daemon=True)
    server.start()
    try:
        return run_client(model, atoms, port=listener.getsockname()[1], wait=5)
    finally:
        server.join(5)
        listener.close()


@pytest.mark.filterwarnings(OUTSIDE)
def test_the_protocol():
    known, said, eye = reference(), [], np.eye(3)

    def script(protocol):
        said.append(protocol.status())
        protocol.sendinit()
        protocol.sendposdata(eye, eye, known.start.positions)
        said.append(protocol.status())
        said.append(protocol.sendrecv_force()[0])
        said.append(protocol.status())

    against(script, known.potential, known.start)  # the server leaves without EXIT
    assert said == ["READY", "HAVEDATA", pytest.approx(known.energy, abs=1e-9), "READY"]


def test_refusals():
    known, eye = reference(), np.eye(3)
    with pytest.raises(GeomAttError, match="holds N, which this model was not trained on"):
        run_client(known.potential, other_element())
    boxed = known.start.copy()
    boxed.pbc = True
    with pytest.raises(GeomAttError, match="is periodic, but in this model"):
        run_client(known.potential, boxed)
    with pytest.raises(GeomAttError, match=r"No server answers at /tmp/ipi_nobody .* Start i-PI first"):
        run_client(known.potential, known.start, unix="nobody", wait=0.1)
    with pytest.raises(GeomAttError, match="No server answers at localhost:1 "):
        run_client(known.potential, known.start, port=1, wait=0.0)
    for message, script in (
        ("moves 3 atoms, the structure given has 9", lambda p: p.sendposdata(eye, eye, np.zeros((3, 3)))),
        ("not finite", lambda p: p.sendposdata(eye, eye, np.full((9, 3), np.nan))),
        ("'GETFORCE' out of turn", lambda p: p.sendmsg("GETFORCE")),
        ("'HELLO' out of turn", lambda p: p.sendmsg("HELLO")),
    ):
        with pytest.raises(GeomAttError, match=message):
            against(script, known.potential, known.start)
