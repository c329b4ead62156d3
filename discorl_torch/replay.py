"""A ring of whole trajectories with nothing in it that learning does not need."""

from typing import Any

import torch
from torch import Tensor

from discorl.errors import DiscorlError, require_positive
from discorl_torch.trees import leaves, shapes, tree_map
from discorl_torch.types import Rollout

BATCH_ONLY = ("memory",)  # fields without a time axis


class Replay:
    """Trajectories are rows, so that sampling copies whole stretches; batches come out time-major.

    Storage is made when the first rollout tells its shapes, on `device` (where the rollouts are, if not told).
    """

    def __init__(self, capacity: int, *, device: torch.device | str | None = None, seed: int = 0):
        require_positive("the replay's capacity", capacity)
        self.capacity, self.device = capacity, device
        self.size = self.cursor = 0
        self.store: Rollout | None = None  # [capacity, T, ...]
        self.rng = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self.size

    def add(self, rollout: Rollout) -> None:
        """Each of its B trajectories becomes one row; the oldest rows make room."""
        rows = _rows_first(rollout)
        batch = rollout.action.shape[1]
        if self.store is None:
            self.store = tree_map(
                lambda x: torch.zeros(self.capacity, *x.shape[1:], dtype=x.dtype, device=self.device or x.device), rows
            )
        if shapes(rows, 1) != (kept := shapes(self.store, 1)):
            raise DiscorlError(
                f"this rollout has the shapes {_named(shapes(rows, 1))}, but the replay holds {_named(kept)}; "
                "keep the rollout length, and future_value if it was given"
            )
        if batch > self.capacity:
            raise DiscorlError(f"a rollout of {batch} trajectories does not fit a replay of {self.capacity}")
        index = (self.cursor + torch.arange(batch)) % self.capacity
        for store, x in zip(leaves(self.store), leaves(rows), strict=True):
            store[index.to(store.device)] = x.to(store.device, store.dtype)
        self.cursor = (self.cursor + batch) % self.capacity
        self.size = min(self.size + batch, self.capacity)

    def sample(self, count: int, device: torch.device | str | None = None) -> Rollout:
        """`count` trajectories with replacement, side by side."""
        if self.store is None:
            raise DiscorlError("the replay is empty; add a rollout before sampling")
        index = torch.randint(self.size, (count,), generator=self.rng)
        picked = tree_map(lambda x: x[index.to(x.device)].to(device or x.device), self.store)
        return _time_first(picked)

    def bytes_per_step(self) -> float:
        if self.store is None:
            return 0.0
        every = sum(x.numel() * x.element_size() for x in leaves(self.store))
        return every / self.capacity / self.store.action.shape[1]

    def to(self, device: torch.device | str) -> "Replay":
        self.device = device
        if self.store is not None:
            self.store = tree_map(lambda x: x.to(device), self.store)
        return self

    def state_dict(self) -> dict[str, Any]:
        filled = None if self.store is None else tree_map(lambda x: x[: self.size], self.store)._asdict()
        return {
            "capacity": self.capacity,
            "size": self.size,
            "cursor": self.cursor,
            "rng": self.rng.get_state(),
            "store": filled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["capacity"] != self.capacity:
            raise DiscorlError(
                f"this state was saved with a replay of {state['capacity']} trajectories, "
                f"but this trainer's has room for {self.capacity}"
            )
        self.size, self.cursor = state["size"], state["cursor"]
        self.rng.set_state(state["rng"].cpu())
        self.store = None
        if state["store"] is not None:

            def restore(x: Tensor) -> Tensor:
                full = torch.zeros(self.capacity, *x.shape[1:], dtype=x.dtype, device=self.device or x.device)
                full[: self.size] = x
                return full

            self.store = tree_map(restore, Rollout(**state["store"]))


def _swap(name: str, tree: Any) -> Any:
    return tree if name in BATCH_ONLY else tree_map(lambda x: x.transpose(0, 1).contiguous(), tree)


def _rows_first(rollout: Rollout) -> Rollout:
    """[T, B, ...] -> [B, T, ...], and `valid` made explicit."""
    if rollout.valid is None:
        rollout = rollout._replace(valid=torch.ones_like(rollout.action, dtype=torch.bool))
    return Rollout(**{name: _swap(name, x) for name, x in rollout._asdict().items()})


def _time_first(rows: Rollout) -> Rollout:
    return Rollout(**{name: _swap(name, x) for name, x in rows._asdict().items()})


def _named(sizes: Rollout) -> str:
    return ", ".join(
        f"{name} {x}" for name, x in sizes._asdict().items() if name in ("obs", "action", "behaviour_logits", "rest")
    )
