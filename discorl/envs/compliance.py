"""Does an environment keep the contract? One reusable check, for tests and for environments people bring."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import PyTree

from discorl.envs.base import Environment, EnvSpec, TimeStep, batch
from discorl.errors import DiscorlError

MAX_LANES = 32  # actions tried at the same time: many enough to be quick, few enough for image observations


def check(env: Any, steps: int = 20, max_steps: int | None = None) -> None:
    """Raises a DiscorlError, one sentence, on the first breach of the contract it finds.

    Types are compared without running anything; then a compiled batch runs for `steps` steps (0: not at all), long
    enough to try every action. With `max_steps`, episodes must also end within that many steps.
    """
    if not isinstance(env, Environment):
        raise DiscorlError(f"an environment must be a discorl.envs.Environment, got {type(env).__name__}")
    _check_spec(env.spec)
    where = f"environment {env.spec.name!r}"
    _check_types(env, where)
    if steps > 0:
        _check_numbers(env, where, max(steps, -(-env.spec.num_actions // MAX_LANES)))
    if max_steps is not None:
        _check_end(env, where, max_steps)


def _check_spec(spec: Any) -> None:
    if not isinstance(spec, EnvSpec):
        raise DiscorlError(f"the spec of an environment must be an EnvSpec, got {type(spec).__name__}")
    if not isinstance(spec.name, str) or not spec.name:
        raise DiscorlError(f"the name of an environment must be a string that is not empty, got {spec.name!r}")
    where, count = f"environment {spec.name!r}", spec.num_actions
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise DiscorlError(f"{where}: spec.num_actions must be a whole number of at least 1, got {count!r}")
    if spec.action_names and len(spec.action_names) != count:
        raise DiscorlError(f"{where}: spec.action_names has {len(spec.action_names)} names for {count} actions")
    leaves = jax.tree.leaves(spec.observation)
    if not leaves:
        raise DiscorlError(f"{where}: spec.observation has no arrays, but an agent must see something")
    for leaf in leaves:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            raise DiscorlError(
                f"{where}: spec.observation must be a tree of jax.ShapeDtypeStruct, but it holds {_kind(leaf)}"
            )


def _check_types(env: Environment, where: str) -> None:
    """Traces reset and step as `jit` would, and compares what they promise."""
    key = jax.random.key(0)
    action = jax.ShapeDtypeStruct((), jnp.int32)
    state, obs = _pair(_traced(f"{where}: reset", env.reset, key), f"{where}: reset", "(state, obs)")
    _compare(f"{where}: the observation of reset", obs, "spec.observation", env.spec.observation)
    result = _traced(f"{where}: step", env.step, key, state, action)
    next_state, timestep = _pair(result, f"{where}: step", "(state, TimeStep)")
    _compare(f"{where}: the state after step", next_state, "the state of reset", state)
    if not isinstance(timestep, TimeStep):
        raise DiscorlError(f"{where}: step must return (state, TimeStep), got {_kind(timestep)} as the second")
    _compare(f"{where}: the observation of step", timestep.obs, "spec.observation", env.spec.observation)
    for name, dtype in (("reward", jnp.float32), ("terminated", jnp.bool_), ("truncated", jnp.bool_)):
        _compare(f"{where}: {name}", getattr(timestep, name), "the contract", jax.ShapeDtypeStruct((), dtype))
    _refuse_weak(f"{where}: the state of reset", state)
    _refuse_weak(f"{where}: the observation of reset", obs)
    _refuse_weak(f"{where}: the state after step", next_state)
    _refuse_weak(f"{where}: the result of step", timestep)


def _check_numbers(env: Environment, where: str, steps: int) -> None:
    """Runs a compiled batch twice: the numbers must be finite and the same."""
    lanes = _lanes(env)
    actions = np.arange(steps * lanes, dtype=np.int32).reshape(steps, lanes) % env.spec.num_actions
    batched = batch(env, lanes)

    def run(keys, actions):
        state, obs = batched.reset(keys[0])
        state, history = lax.scan(lambda state, x: batched.step(x[0], state, x[1]), state, (keys[1:], actions))
        return obs, history, state.env

    def compiled_twice():
        # Traced twice, so that randomness taken from outside of JAX shows; compiled twice only if it does.
        args = (jax.random.split(jax.random.key(0), 1 + steps), actions)
        one, two = (jax.jit(lambda *args: run(*args)).lower(*args) for _ in range(2))
        program = one.compile()
        return program(*args), (program if one.as_text() == two.as_text() else two.compile())(*args)

    (first_obs, history, env_state), again = _called(f"{where}: reset or step, in a compiled batch,", compiled_twice)
    if not np.isfinite(history.reward).all():
        raise DiscorlError(f"{where}: reward must be finite, but it was not within {steps} steps")
    for x in jax.tree.leaves((first_obs, history.obs)):
        if jnp.issubdtype(x.dtype, jnp.inexact) and not jnp.isfinite(x).all():
            raise DiscorlError(f"{where}: observations must be finite, but one was not within {steps} steps")
    pairs = zip(jax.tree.leaves((first_obs, history)), jax.tree.leaves(again[:2]), strict=True)
    if not all(np.array_equal(x, y) for x, y in pairs):
        raise DiscorlError(f"{where}: the same key gave different numbers; draw all randomness from the key")
    text = _called(f"{where}: render", env.render, jax.tree.map(lambda x: x[0], env_state))
    if not isinstance(text, str):
        raise DiscorlError(f"{where}: render must return text, got {_kind(text)}")


def _check_end(env: Environment, where: str, max_steps: int) -> None:
    lanes = _lanes(env)
    batched = batch(env, lanes)

    def advance(carry, t):
        state, ended = carry
        action = (jnp.arange(lanes, dtype=jnp.int32) + t) % env.spec.num_actions
        state, step = batched.step(jax.random.fold_in(jax.random.key(2), t), state, action)
        return (state, ended | step.end.ended), None

    def run(key):
        state, _ = batched.reset(key)
        return lax.scan(advance, (state, jnp.zeros(lanes, bool)), jnp.arange(max_steps, dtype=jnp.int32))[0][1]

    ended = _called(f"{where}: reset or step, in a compiled batch,", jax.jit(run), jax.random.key(1))
    if not ended.all():
        raise DiscorlError(f"{where}: an episode did not end within {max_steps} steps")


def _lanes(env: Environment) -> int:
    """One lane more than actions, so that counting through the lanes shifts the actions with every step."""
    return min(env.spec.num_actions, MAX_LANES) + 1


def _traced(what: str, function: Any, *args: Any) -> Any:
    return _called(what, lambda: jax.eval_shape(function, *args))


def _called(what: str, function: Any, *args: Any) -> Any:
    """Whatever somebody's code raises, as one sentence that says where."""
    try:
        return function(*args)
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise DiscorlError(f"{what} raised {type(error).__name__}: {first_line}") from error


def _pair(result: Any, what: str, wanted: str) -> tuple[Any, Any]:
    if type(result) is not tuple or len(result) != 2:
        raise DiscorlError(f"{what} must return {wanted}, got {_kind(result)}")
    return result


def _compare(what: str, got: PyTree, other: str, expected: PyTree) -> None:
    """Same structure, and the same shape and dtype in every place."""
    if jax.tree.structure(got) != jax.tree.structure(expected):
        raise DiscorlError(
            f"{what} has the structure {jax.tree.structure(got)}, but {other} says {jax.tree.structure(expected)}"
        )
    leaves = zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True)
    for (path, x), y in leaves:
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            place = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise DiscorlError(f"{what} is {_kind(x)}{place}, but {other} says {_kind(y)}")


def _refuse_weak(what: str, tree: PyTree) -> None:
    for path, x in jax.tree_util.tree_leaves_with_path(tree):
        if x.weak_type:
            place = f" at {jax.tree_util.keystr(path)}" if path else ""
            raise DiscorlError(
                f"{what} is weakly typed{place} (made of a bare Python number); give it a type, for example "
                f"jnp.asarray(x, jnp.{x.dtype})"
            )


def _kind(x: Any) -> str:
    """An array as `float32[8,8]`, anything else as its class."""
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{x.dtype}[{','.join(map(str, x.shape))}]"
    return type(x).__name__
