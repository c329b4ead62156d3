"""What fixes a discovered rule besides its weights, and the names and shapes of those weights. Knows no framework."""

from dataclasses import dataclass
from typing import Literal

Activation = Literal["relu", "silu"]
# What may be changed without another set of weights.
SHARES = ("discount", "trace_decay", "moment_decay", "target_keep")  # at most 1
CONSTANTS = (*SHARES, "value_cost", "entropy_cost")


@dataclass(frozen=True)
class DiscoConfig:
    """Sizes and constants of a discovered rule; the defaults are those of the published Disco103."""

    predictions: int = 600  # Y, of y and z
    value_bins: int = 601  # K, of q
    max_value: float = 300.0  # the bins span ±this, in signed-hyperbolic space
    trajectory_width: int = 256  # of the LSTM that runs backwards along a trajectory
    lifetime_width: int = 128  # of the LSTM that makes one step per update
    prediction_embedding: tuple[int, ...] = (16, 1)  # layers that shrink a prediction to a few numbers
    action_channels: tuple[int, ...] = (16, 2)  # blocks that look at all actions
    policy_channels: tuple[int, ...] = (16,)  # blocks that shape the policy target
    lifetime_inputs: int = 16
    activation: Activation = "relu"
    discount: float = 0.997  # γ
    trace_decay: float = 0.95  # λ of Retrace
    moment_decay: float = 0.99  # of the running moments that normalise advantages
    target_keep: float = 0.9  # share of the target parameters that stays at each update
    value_cost: float = 0.2  # weight of the value loss; the four others weigh 1
    entropy_cost: float = 0.0  # weight of the policy's entropy in the agent's loss; the published rule has none

    @property
    def action_features(self) -> int:
        """Channels per action that enter the action encoder."""
        return 7 + 2 * self.prediction_embedding[-1]

    @property
    def step_features(self) -> int:
        """Numbers per step that enter the trajectory LSTM."""
        return 9 + 14 * self.prediction_embedding[-1] + 2 * self.action_channels[-1]


def array_shapes(config: DiscoConfig) -> dict[str, tuple[int, ...]]:
    """Every array of a rule file under its published name, with its shape, in the published order of computation."""
    shapes: dict[str, tuple[int, ...]] = {}

    def linear(name: str, inputs: int, outputs: int, *, kernel: tuple[int, ...] = ()) -> None:
        shapes[f"{name}/w"] = (*kernel, inputs, outputs)
        shapes[f"{name}/b"] = (outputs,)

    def encoders(prefix: str) -> None:
        for mlp in ("mlp", "mlp_1"):
            size = config.predictions
            for i, width in enumerate(config.prediction_embedding):
                linear(f"{prefix}/{mlp}/~/linear_{i}", size, width)
                size = width
        blocks(f"{prefix}/sequential", config.action_features, config.action_channels)

    def blocks(prefix: str, size: int, channels: tuple[int, ...]) -> None:
        for i, width in enumerate(channels):
            linear(f"{prefix}/conv1_d{f'_{i}' if i else ''}", 2 * size, width, kernel=(1,))
            size = width

    wide, life = config.trajectory_width, config.lifetime_width
    encoders("lstm")
    linear("lstm/lstm/linear", config.step_features + wide, 4 * wide)
    linear("lstm/linear", life, wide)  # gate
    linear("lstm/linear_1", wide, 1)  # summary
    linear("lstm/linear_2", wide, config.predictions)  # ŷ
    linear("lstm/linear_3", wide, config.predictions)  # ẑ
    blocks("lstm/sequential_1", wide + config.action_channels[-1], config.policy_channels)
    linear("lstm/linear_4", config.policy_channels[-1], 1)  # π̂

    prefix = "lstm/~/meta_lstm/~unroll"
    encoders(prefix)
    lifetime_features = config.step_features + 1 + config.prediction_embedding[-1]
    linear(f"{prefix}/mlp_2/~/linear_0", lifetime_features, config.lifetime_inputs)
    linear(f"{prefix}/lstm/linear", config.lifetime_inputs + life, 4 * life)
    return shapes
