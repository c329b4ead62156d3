"""Where a population lives: its agents spread evenly over devices, of one machine or many, the rule on all of them.

Arrays carry their placement and `jit` does the rest. Each of many machines runs the same program: what it computes they
compute together, what it decides they must decide alike, and one of them, the leader, writes the files.
"""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree

from discorl.discovery.population import PopulationState
from discorl.errors import DiscorlError

AXIS = "agents"
AUTO = "auto"
FORCED = "xla_force_host_platform_device_count"  # what says, in XLA_FLAGS, how many devices a CPU is


def join(where: str) -> None:
    """Makes this process one of many, before JAX computes anything: ADDRESS:PORT,COUNT,INDEX or what a cluster says."""
    try:
        if where == AUTO:
            return jax.distributed.initialize()
        address, count, index = where.split(",")
        return jax.distributed.initialize(address, num_processes=int(count), process_id=int(index))
    except (ValueError, RuntimeError) as error:
        reason, _, _ = str(error).partition("\n")
        raise DiscorlError(
            f"cannot join the other processes ({reason}); say where the first one listens, "
            "how many there are and which this is, as in 10.0.0.1:1234,2,0"
        ) from error


def use_every_core() -> None:
    """Makes every core a device, before JAX computes anything, unless somebody has said how many there should be.

    Agents side by side keep cores busier than the small products of one program do.
    """
    if FORCED in os.environ.get("XLA_FLAGS", "") or jax.config.values["jax_num_cpu_devices"] > 0:
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(RuntimeError):  # it computes already, with the devices it has
        jax.config.update("jax_num_cpu_devices", cores)


def leads() -> bool:
    return jax.process_index() == 0


def alone() -> bool:
    return jax.process_count() == 1


def make_mesh(cohorts: Sequence[int], wanted: int | None) -> Mesh:
    """Devices for cohorts of so many agents: as many as were asked for, or the most that share all of them evenly."""
    available = jax.device_count()
    if wanted is not None and wanted > available:
        raise DiscorlError(f"devices is {wanted}, but JAX sees {available}; leave it out to use what there is")
    fitting = [n for n in range(1, available + 1) if all(agents % n == 0 for agents in cohorts)]
    count = wanted or (fitting[-1] if alone() else available)
    if count not in fitting:
        raise DiscorlError(
            f"{count} devices cannot share cohorts of {', '.join(map(str, sorted(set(cohorts))))} agents evenly; "
            f"make agents a multiple of {count}, or use one of these numbers of devices: {str(fitting)[1:-1]}"
        )
    if not alone() and count < available:
        raise DiscorlError(f"devices is {count}, but processes that work together use all {available}; leave it out")
    return Mesh(jax.devices()[:count], (AXIS,))


def everywhere(mesh: Mesh) -> NamedSharding:
    return NamedSharding(mesh, PartitionSpec())


def shardings(mesh: Mesh, one_optimizer: bool) -> PopulationState:
    """Of a population's state, as the prefix of a tree."""
    whole, spread = everywhere(mesh), NamedSharding(mesh, PartitionSpec(AXIS))
    agents: Any = {"optimizers": whole if one_optimizer else spread, "lives": spread}
    return PopulationState(**dict.fromkeys(PopulationState._fields, whole) | agents)


def gathered(mesh: Mesh, tree: PyTree) -> PyTree:
    """All of it in this process; every process must ask."""
    if alone():
        return tree
    whole = jax.jit(lambda x: x, out_shardings=everywhere(mesh))(tree)
    return jax.tree.map(lambda x: x.addressable_data(0), whole)


def agreed(flag: bool) -> bool:
    """Whether it is so in any process; every process must ask."""
    return flag if alone() else bool(multihost_utils.process_allgather(np.asarray(flag)).any())
