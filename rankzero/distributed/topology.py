"""Rank, world size and node, read from what a launcher left in the environment.

Reading is a pure function of a mapping. A launcher is a row of ``LAUNCHERS``: the variable by which
it is recognised, and a function that answers. The variables are those documented by torchrun
(torch.distributed.run), Slurm (srun), Open MPI (mpirun), MPICH/Hydra and Intel MPI (PMI), and
MVAPICH2.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Environment = Mapping[str, str]

FIRST_DERIVED_PORT, DERIVED_PORTS = 20_000, 20_000


@dataclass(frozen=True)
class Topology:
    """Where this process stands among all.

    Attributes:
        rank: 0 to ``world_size`` - 1.
        world_size: Number of processes.
        local_rank: Rank inside the node, 0 to ``local_world_size`` - 1.
        local_world_size: Number of processes on this node.
        node_rank: 0 to ``num_nodes`` - 1.
        num_nodes: Number of machines.
        main_address: Host on which rank 0 listens; None for one process.
        main_port: Port on which rank 0 listens; None for one process.
        launcher: Who started the processes: "none", "torchrun", "slurm", "openmpi", "mpich", ...
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    num_nodes: int = 1
    main_address: str | None = None
    main_port: int | None = None
    launcher: str = "none"


def read_topology(environ: Environment) -> Topology:
    """Return where this process stands, from environment variables alone.

    Raises:
        ValueError: values that are garbled, contradict each other, or are half set; the message
            names the variables.
    """
    for recognised_by, read in LAUNCHERS:
        if any(environ.get(variable, "").strip() for variable in recognised_by):
            topology = read(environ)
            if topology is not None:
                return topology
    return Topology()


def _integer(environ: Environment, variable: str, default: int | None = None) -> int:
    """Return a variable as a whole number of at least 0."""
    text = environ.get(variable, "").strip()
    if not text:
        if default is not None:
            return default
        raise ValueError(
            f"{variable} is not set, though other variables of the launcher are: set it, or unset "
            "the others to run as one process."
        )
    if not re.fullmatch(r"\d+", text):
        raise ValueError(f"{variable}={text!r} is not a whole number of at least 0.")
    return int(text)


def _first_set(environ: Environment, *variables: str) -> str:
    """Return the first of ``variables`` that is set, or the first of all."""
    return next((name for name in variables if environ.get(name, "").strip()), variables[0])


def _check_below(environ: Environment, index: str, count: str) -> tuple[int, int]:
    """Return a rank and the number that it must be below."""
    total = _integer(environ, count)
    if total < 1:
        raise ValueError(f"{count}={total}: there is at least one process.")
    rank = _integer(environ, index)
    if rank >= total:
        raise ValueError(
            f"{index}={rank} and {count}={total} contradict each other: ranks go from 0 to {total - 1}."
        )
    return rank, total


def _address(environ: Environment, host: str | None, job: str) -> tuple[str, int]:
    """Return where rank 0 listens: MASTER_ADDR and MASTER_PORT, else a host and a derived port.

    Args:
        environ: The environment.
        host: The host of rank 0 as far as the launcher tells; None where it does not.
        job: What names this job; all ranks derive the same port from it.
    """
    address = environ.get("MASTER_ADDR", "").strip() or host
    if not address:
        raise ValueError(
            "MASTER_ADDR is not set, and the launcher does not say on which machine rank 0 runs: "
            "export MASTER_ADDR with that machine's name or address on every node."
        )
    derived = FIRST_DERIVED_PORT + zlib.crc32(job.encode()) % DERIVED_PORTS
    port = _integer(environ, "MASTER_PORT", derived)
    if not 0 < port < 65_536:
        raise ValueError(f"MASTER_PORT={port} is not a port: write 1 to 65535.")
    return address, port


def _torchrun(environ: Environment) -> Topology:
    rank, world = _check_below(environ, "RANK", "WORLD_SIZE")
    if environ.get("LOCAL_WORLD_SIZE", "").strip():
        local_rank, local_world = _check_below(environ, "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    else:  # variables set by hand often leave it out
        local_rank = _integer(environ, "LOCAL_RANK", rank)
        local_world = max(world, local_rank + 1)
    if local_world > world:
        raise ValueError(
            f"LOCAL_WORLD_SIZE={local_world} and WORLD_SIZE={world} contradict each other: a node "
            "cannot hold more processes than there are."
        )
    node_rank = _integer(environ, "GROUP_RANK", _integer(environ, "NODE_RANK", rank // local_world))
    nodes = _integer(environ, "GROUP_WORLD_SIZE", -(-world // local_world))
    address, port = (None, None)
    if world > 1 or environ.get("MASTER_ADDR", "").strip():
        address, port = _address(environ, "127.0.0.1" if nodes == 1 else None, "torchrun")
    return Topology(
        rank, world, local_rank, local_world, node_rank, nodes, address, port, "torchrun"
    )


def _slurm(environ: Environment) -> Topology | None:
    # Inside `sbatch` or `salloc`, outside `srun`, there is one process whatever the job's size:
    # only srun's steps have variables of a step.
    if not any(name.startswith("SLURM_STEP") for name in environ):
        return None
    tasks = _first_set(environ, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS")
    # A PMI of another size is Hydra's, which used srun only to start its own helpers.
    if environ.get("PMI_SIZE", environ.get(tasks, "")) != environ.get(tasks, ""):
        return None
    rank, world = _check_below(environ, "SLURM_PROCID", tasks)
    nodes_name = _first_set(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    nodes = max(1, _integer(environ, nodes_name, 1))
    node_rank = _integer(environ, "SLURM_NODEID", 0)
    if node_rank >= nodes:
        raise ValueError(
            f"SLURM_NODEID={node_rank} and {nodes_name}={nodes} contradict each other: nodes go "
            f"from 0 to {nodes - 1}."
        )
    local_rank = _integer(environ, "SLURM_LOCALID")
    per_node = environ.get("SLURM_STEP_TASKS_PER_NODE", environ.get("SLURM_TASKS_PER_NODE", ""))
    local_world = _tasks_on_node(per_node, node_rank) or -(-world // nodes)
    if local_rank >= local_world:
        raise ValueError(
            f"SLURM_LOCALID={local_rank} and SLURM_STEP_TASKS_PER_NODE={per_node!r} contradict each "
            f"other: node {node_rank} runs {local_world} tasks."
        )
    if world == 1:
        return Topology(launcher="slurm")
    hosts = environ.get("SLURM_STEP_NODELIST", environ.get("SLURM_JOB_NODELIST", ""))
    job = environ.get("SLURM_JOB_ID", "0") + "." + environ.get("SLURM_STEP_ID", "0")
    host = "127.0.0.1" if nodes == 1 else first_host(hosts)
    address, port = _address(environ, host, job)
    return Topology(rank, world, local_rank, local_world, node_rank, nodes, address, port, "slurm")


def _tasks_on_node(text: str, node: int) -> int | None:
    """Read Slurm's "4(x2),3": four tasks on each of the first two nodes, three on the next."""
    counts: list[int] = []
    for part in filter(None, text.split(",")):
        match = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part.strip())
        if match is None:
            raise ValueError(f"SLURM_STEP_TASKS_PER_NODE={text!r} is not of the form '4(x2),3'.")
        counts += [int(match[1])] * int(match[2] or 1)
    return counts[node] if node < len(counts) else None


def first_host(node_list: str) -> str | None:
    """Return the first host of a Slurm node list: "gpu[03-05,9],login" gives "gpu03"."""
    match = re.match(r"([^,\[]+)(?:\[([^\]]+)\])?([^,]*)", node_list.strip())
    if match is None:
        return None
    prefix, ranges, suffix = match[1], match[2], match[3]
    return prefix + re.split(r"[-,]", ranges)[0] + suffix if ranges else prefix


def _mpi(
    name: str, rank: str, size: str, local_rank: tuple[str, ...], local_size: tuple[str, ...]
) -> Callable[[Environment], Topology]:
    """Make the reader of an MPI launcher from the names of its variables."""

    def read(environ: Environment) -> Topology:
        index, world = _check_below(environ, rank, size)
        # Without local variables there is one node, as far as can be told.
        local_name, count_name = _first_set(environ, *local_rank), _first_set(environ, *local_size)
        local_world = _integer(environ, count_name, world)
        local = _integer(environ, local_name, index % max(1, local_world))
        if not 0 < local_world <= world or local >= local_world:
            raise ValueError(
                f"{local_name}={local}, {count_name}={local_world} and {size}={world} contradict "
                "each other."
            )
        nodes = -(-world // local_world)
        if world == 1:
            return Topology(launcher=name)
        job = environ.get("PMIX_NAMESPACE", environ.get("PMI_JOBID", environ.get("USER", "mpi")))
        address, port = _address(environ, "127.0.0.1" if nodes == 1 else None, job)
        node = index // local_world
        return Topology(index, world, local, local_world, node, nodes, address, port, name)

    return read


# In order of precedence: torchrun's variables are the most particular, since torchrun is often
# started by one of the others; srun sets PMI's variables too, without those of the node.
LAUNCHERS: tuple[tuple[tuple[str, ...], Callable[[Environment], Topology | None]], ...] = (
    (("RANK", "WORLD_SIZE"), _torchrun),
    (
        ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
        _mpi(
            "openmpi",
            "OMPI_COMM_WORLD_RANK",
            "OMPI_COMM_WORLD_SIZE",
            ("OMPI_COMM_WORLD_LOCAL_RANK",),
            ("OMPI_COMM_WORLD_LOCAL_SIZE",),
        ),
    ),
    (
        ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
        _mpi(
            "mvapich",
            "MV2_COMM_WORLD_RANK",
            "MV2_COMM_WORLD_SIZE",
            ("MV2_COMM_WORLD_LOCAL_RANK",),
            ("MV2_COMM_WORLD_LOCAL_SIZE",),
        ),
    ),
    (("SLURM_PROCID",), _slurm),
    (
        ("PMI_SIZE", "PMI_RANK"),
        _mpi(
            "mpich",
            "PMI_RANK",
            "PMI_SIZE",
            ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
            ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
        ),
    ),
)
