"""i-PI and ASE's socket server: the results and dynamics of ASE through a socket, and invalid input."""

from __future__ import annotations

import importlib
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
from engine_molecule import (
    OUTSIDE,
    STEPS,
    TIMESTEP,
    charged,
    hide,
    other_element,
    overlapping,
    periodic,
    reference,
)

from geomatt import GeomAttCalculator, GeomAttError, save
from geomatt.data.structures import as_structure
from geomatt.simulation.engines import ipi_forcefield, run_client

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


@has_ipi
@pytest.mark.filterwarnings(OUTSIDE)
def test_beads_together_are_beads_one_by_one(tmp_path):
    """As i-PI makes the driver from the input it is given."""
    from ipi.inputs.forcefields import InputFFDirect
    from ipi.utils.io.inputs.io_xml import xml_parse_string

    known = reference()
    save(known.potential, tmp_path / "model.safetensors")
    known.start.write(tmp_path / "start.extxyz")
    xml = ipi_forcefield(tmp_path / "model.safetensors", tmp_path / "start.extxyz", beads=3)
    block = InputFFDirect()
    block.parse(xml_parse_string(xml).fields[0][1])
    forcefield = block.fetch()
    assert forcefield.batch_size == 3
    assert not forcefield.dopbc
    calculator = GeomAttCalculator(tmp_path / "model.safetensors")  # files round the ranges of distances
    rng = np.random.default_rng(0)
    beads = [known.start.positions + 0.05 * rng.standard_normal((9, 3)) for _ in range(3)]
    found = forcefield.driver([np.eye(3)] * 3, [b / units.Bohr for b in beads])
    for bead, (energy, forces, virial, extras) in zip(beads, found, strict=True):
        atoms = known.start.copy()
        atoms.positions = bead
        expected = calculator.get_potential_energy(atoms)
        assert energy * units.Ha == pytest.approx(expected, rel=2e-8)  # ASE has an older constant
        np.testing.assert_allclose(forces * units.Ha / units.Bohr, calculator.get_forces(atoms), atol=1e-5)
        assert (virial == 0).all()
        assert extras == ""
    assert calculator.wall_steps == 3
    assert forcefield.driver.systems.wall_steps.tolist() == [1, 1, 1]
    single = forcefield.driver(np.eye(3), beads[0] / units.Bohr)
    assert single[0] == pytest.approx(found[0][0], abs=1e-10)
    with pytest.raises(GeomAttError, match="i-PI moves 3 atoms, the template has 9"):
        forcefield.driver(np.eye(3), np.zeros((3, 3)))


@has_ipi
def test_virial_of_beads(tmp_path):
    from geomatt.simulation.engines.ipi_beads import BeadsDriver

    potential, atoms = periodic()
    save(potential, tmp_path / "model.safetensors")
    atoms.write(tmp_path / "start.extxyz", columns=["symbols", "positions"])
    driver = BeadsDriver(str(tmp_path / "model.safetensors"), str(tmp_path / "start.extxyz"))
    _, _, virial, _ = driver(atoms.cell.array.T / units.Bohr, atoms.positions / units.Bohr)
    expected = atoms.copy()
    expected.calc = GeomAttCalculator(potential)
    stress = -virial * units.Ha / atoms.get_volume()
    np.testing.assert_allclose(stress, expected.get_stress(voigt=False), atol=1e-6)


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


@pytest.mark.parametrize("kind", ["atoms", "structure"])
def test_charge_and_multiplicity(kind):
    potential, atoms = charged()
    said, eye = [], np.eye(3)

    def script(protocol):
        protocol.sendposdata(eye, eye, atoms.positions)
        said.append(protocol.sendrecv_force()[0])

    against(script, potential, atoms if kind == "atoms" else as_structure(atoms))
    assert said == [pytest.approx(atoms.get_potential_energy(), abs=1e-9)]


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
    with pytest.raises(GeomAttError, match="cannot hold the name"):
        ipi_forcefield("a,b", "c.xyz", beads=1)
    crowded = overlapping().positions
    for message, script in (
        ("has overlapping atoms", lambda p: p.sendposdata(eye, eye, crowded)),
        ("moves 3 atoms, the structure given has 9", lambda p: p.sendposdata(eye, eye, np.zeros((3, 3)))),
        ("not finite", lambda p: p.sendposdata(eye, eye, np.full((9, 3), np.nan))),
        ("'GETFORCE' out of turn", lambda p: p.sendmsg("GETFORCE")),
        ("'HELLO' out of turn", lambda p: p.sendmsg("HELLO")),
    ):
        with pytest.raises(GeomAttError, match=message):
            against(script, known.potential, known.start)


@has_ipi
def test_without_ipi(monkeypatch):
    module = "geomatt.simulation.engines.ipi_beads"
    hide(monkeypatch, "ipi", module)
    with pytest.raises(GeomAttError, match=r"pip install 'geomatt\[ipi\]'"):
        importlib.import_module(module)
