"""Each launcher's variables, as it sets them, and what is wrong with them."""

from __future__ import annotations

import pytest

from rankzero.distributed.topology import Topology, first_host, read_topology

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1",
    "GROUP_WORLD_SIZE": "2",
    "MASTER_ADDR": "10.1.2.3",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
}
SRUN = {
    "SLURM_JOB_ID": "4711",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "6",
    "SLURM_LOCALID": "2",
    "SLURM_NODEID": "1",
    "SLURM_NTASKS": "8",
    "SLURM_NNODES": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
    "SLURM_STEP_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NODELIST": "gpu[07-08]",
    "SLURM_JOB_NAME": "train",
    # srun --mpi=pmi2 sets these too, without those of the node
    "PMI_RANK": "6",
    "PMI_SIZE": "8",
}
OPENMPI = {
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_NODE_RANK": "1",
    "PMIX_NAMESPACE": "prterun-host-123@1",
    "MASTER_ADDR": "node0",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
INTEL = {**HYDRA, "PMI_FD": "9", "I_MPI_MPIRUN": "mpirun"}
MVAPICH = {
    "MV2_COMM_WORLD_SIZE": "2",
    "MV2_COMM_WORLD_RANK": "1",
    "MV2_COMM_WORLD_LOCAL_SIZE": "2",
    "MV2_COMM_WORLD_LOCAL_RANK": "1",
}


def test_nothing_set_is_one_process() -> None:
    assert read_topology({"PATH": "/bin", "HOME": "/root"}) == Topology()
    assert read_topology({"RANK": "", "WORLD_SIZE": " "}) == Topology()


def test_torchrun() -> None:
    expected = Topology(5, 8, 1, 4, 1, 2, "10.1.2.3", 29500, "torchrun")
    assert read_topology(TORCHRUN) == expected


def test_torchruns_variables_set_by_hand() -> None:
    got = read_topology({"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "1234"})
    assert got == Topology(1, 2, 1, 2, 0, 1, "127.0.0.1", 1234, "torchrun")


def test_two_nodes_with_one_process_each_have_two_local_leaders() -> None:
    nodes = [
        {**TORCHRUN, "RANK": r, "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        for r in "01"
    ]
    got = [read_topology({**env, "GROUP_RANK": env["RANK"]}) for env in nodes]
    assert [(t.rank, t.local_rank, t.node_rank) for t in got] == [(0, 0, 0), (1, 0, 1)]


def test_srun_on_two_nodes() -> None:
    got = read_topology(SRUN)
    assert got.main_port is not None
    assert 20_000 <= got.main_port < 40_000
    assert got == Topology(6, 8, 2, 4, 1, 2, "gpu07", got.main_port, "slurm")
    other_rank = {**SRUN, "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
    assert read_topology({**other_rank, "PMI_RANK": "0"}).main_port == got.main_port
    assert read_topology({**SRUN, "SLURM_JOB_ID": "4712"}).main_port != got.main_port


def test_srun_with_uneven_nodes() -> None:
    uneven = {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "5,3"}
    assert read_topology(uneven).local_world_size == 3


def test_a_batch_script_outside_srun_is_one_process() -> None:
    batch = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert read_topology(batch) == Topology()


def test_torchrun_inside_srun_counts_as_torchrun() -> None:
    assert read_topology({**SRUN, **TORCHRUN}).launcher == "torchrun"


def test_hydra_inside_a_slurm_job_counts_as_hydra() -> None:
    proxy = {**SRUN, "SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}
    assert read_topology({**proxy, **HYDRA}).launcher == "mpich"


def test_open_mpi_on_two_nodes() -> None:
    got = read_topology(OPENMPI)
    assert got == Topology(3, 4, 1, 2, 1, 2, "node0", got.main_port, "openmpi")


@pytest.mark.parametrize(
    ("environ", "launcher"), [(HYDRA, "mpich"), (INTEL, "mpich"), (MVAPICH, "mvapich")]
)
def test_other_mpi_launchers_on_one_node(environ: dict[str, str], launcher: str) -> None:
    got = read_topology(environ)
    assert got == Topology(1, 2, 1, 2, 0, 1, "127.0.0.1", got.main_port, launcher)


def test_mpi_on_several_nodes_asks_for_the_main_address() -> None:
    environ = {name: value for name, value in OPENMPI.items() if name != "MASTER_ADDR"}
    with pytest.raises(ValueError, match="export MASTER_ADDR"):
        read_topology(environ)


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RANK": "0"}, "WORLD_SIZE is not set"),
        ({"WORLD_SIZE": "2"}, "RANK is not set"),
        ({**TORCHRUN, "RANK": "abc"}, "RANK='abc' is not a whole number"),
        ({**TORCHRUN, "RANK": "-1"}, "RANK='-1'"),
        ({**TORCHRUN, "RANK": "8"}, "RANK=8 and WORLD_SIZE=8 contradict"),
        ({**TORCHRUN, "WORLD_SIZE": "0"}, "WORLD_SIZE=0"),
        ({**TORCHRUN, "LOCAL_RANK": "4"}, "LOCAL_RANK=4 and LOCAL_WORLD_SIZE=4 contradict"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "16"}, "LOCAL_WORLD_SIZE=16 and WORLD_SIZE=8"),
        ({**TORCHRUN, "MASTER_PORT": "http"}, "MASTER_PORT='http'"),
        ({**TORCHRUN, "MASTER_PORT": "70000"}, "MASTER_PORT=70000 is not a port"),
        ({**SRUN, "SLURM_PROCID": "x"}, "SLURM_PROCID='x'"),
        ({**SRUN, "SLURM_LOCALID": "7"}, "SLURM_LOCALID=7 and SLURM_STEP_TASKS_PER_NODE"),
        ({**SRUN, "SLURM_NODEID": "2"}, "SLURM_NODEID=2 and SLURM_STEP_NUM_NODES=2"),
        ({**SRUN, "SLURM_STEP_TASKS_PER_NODE": "4x2"}, "SLURM_STEP_TASKS_PER_NODE='4x2'"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, "OMPI_COMM_WORLD_RANK is not set"),
        ({**OPENMPI, "OMPI_COMM_WORLD_LOCAL_RANK": "2"}, "OMPI_COMM_WORLD_LOCAL_RANK=2"),
        ({**HYDRA, "PMI_SIZE": "1"}, "PMI_RANK=1 and PMI_SIZE=1 contradict"),
        ({**HYDRA, "MPI_LOCALNRANKS": "two"}, "MPI_LOCALNRANKS='two'"),
    ],
)
def test_garbled_and_contradictory_values_are_named(environ: dict[str, str], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        read_topology(environ)


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("gpu07", "gpu07"),
        ("gpu[07-08]", "gpu07"),
        ("gpu[3,5-9],login1", "gpu3"),
        ("a1,b2", "a1"),
        ("rack1-[01-02]-ib", "rack1-01-ib"),
        ("", None),
    ],
)
def test_the_first_host_of_a_node_list(text: str, host: str | None) -> None:
    assert first_host(text) == host
