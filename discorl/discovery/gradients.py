"""How to differentiate through an agent's updates: a strategy, given as an argument.

All of them are asked for the same thing, the gradient of a window's loss in η, and differ in cost:

    reverse      plain reverse mode: keeps everything that every update computed
    mixed        keeps parameters, inner gradients and digests, computes the rest again (Kemaev et al. 2025)
    evolution    no backward pass at all: perturbs η and looks what comes of it, for horizons of any length
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Int

from discorl.learner import KEPT, AgentLoss, LossGradient, reverse_gradient
from discorl.networks.base import AgentNetwork
from discorl.rules.base import Eta, Targets
from discorl.types import ActionOutput, Key, Params, Rollout, StateOutput

SHORTEST = 3  # updates of a segment that is worth it


class WindowLoss(NamedTuple):
    """`loss` is for whoever differentiates; `score` is what it stands for, a number that is better when larger."""

    loss: Float[Array, ""]
    score: Float[Array, ""]


Index = Int[Array, ""]  # of an update in its window
Update = Callable[[Any, Index], tuple[Any, Any]]
Window = Callable[[Eta], tuple[WindowLoss, Any]]  # also returns whatever else came of it


class MetaGradient(NamedTuple):
    name: str
    inner: Callable[[Index, AgentLoss], LossGradient]  # how an update differentiates the agent's loss
    seen: Callable[[Index, AgentNetwork], AgentNetwork]  # the network as the rule sees it
    update: Callable[[Callable], Callable]  # wraps each update of the window
    scan: Callable[[Update, Any, range], tuple[Any, Any]]  # makes these updates: carry and rows, as `jax.lax.scan`
    outer: Callable[[Window, Eta, Key], tuple[Any, Eta]]  # -> what came of the window, its gradient


def backward(window: Window, eta: Eta, key: Key) -> tuple[Any, Eta]:
    """The gradient by a backward pass over the window."""
    del key

    def loss(eta: Eta) -> tuple[Array, Any]:
        value, rest = window(eta)
        return value.loss, rest

    grads, rest = jax.grad(loss, has_aux=True)(eta)
    return rest, grads


def reverse() -> MetaGradient:
    return MetaGradient(
        "reverse",
        inner=lambda index, loss: reverse_gradient(loss),
        seen=lambda index, network: network,
        update=lambda update: update,
        scan=plain_scan,
        outer=backward,
    )


def mixed() -> MetaGradient:
    """Mixed-mode differentiation with a checkpoint at every update (https://arxiv.org/abs/2505.00793)."""
    return MetaGradient(
        "mixed",
        inner=reverse_over_forward,
        seen=constant_at_first,
        update=_checkpointed,
        scan=scan_in_segments,
        outer=backward,
    )


def plain_scan(update: Update, carry: Any, updates: range) -> tuple[Any, Any]:
    return jax.lax.scan(update, carry, jnp.arange(updates.start, updates.stop))


def scan_in_segments(update: Update, carry: Any, updates: range) -> tuple[Any, Any]:
    """Agents are kept at the start of every segment only; in between they are made again from their inner gradients."""
    length = len(updates)
    size = max(n for n in range(1, math.isqrt(length) + 1) if length % n == 0)
    if size < SHORTEST:
        return plain_scan(update, carry, updates)
    segment = _checkpointed(partial(jax.lax.scan, update))
    last, rows = jax.lax.scan(segment, carry, jnp.arange(updates.start, updates.stop).reshape(-1, size))
    return last, jax.tree.map(lambda x: x.reshape(length, *x.shape[2:]), rows)


def _checkpointed(function: Callable) -> Callable:
    policy = jax.checkpoint_policies.save_only_these_names(KEPT)
    return jax.checkpoint(function, policy=policy, prevent_cse=False)  # inside a scan there is nothing to merge


def reverse_over_forward(index: Index, loss: AgentLoss) -> LossGradient:
    """A gradient whose own backward pass is not a reverse pass over a reverse pass, but over a forward-mode product.

    The cotangent v of ∇θL asks for ∇θ⟨v, ∇θL⟩ and ∇φ⟨v, ∇θL⟩, and ⟨v, ∇θL⟩ is the directional derivative of L along v.
    Targets φ must come in as arguments: what a closure brings would be taken for a constant. The gradient in φ is found
    close to the loss, the one in θ at the far end of the pass, which the first update of a window spares itself.
    """

    def plain(index: Index, params: Params, targets: Targets, rollout: Rollout) -> tuple[tuple[Array, Any], Params]:
        value, grads = jax.value_and_grad(loss, has_aux=True)(params, targets, rollout)
        return jax.lax.stop_gradient(value), jax.tree.map(lambda g: checkpoint_name(g, KEPT), grads)

    gradient = jax.custom_vjp(plain)

    def forward(*args: Any) -> tuple[Any, tuple]:
        # `plain`: a checkpoint cannot look into a function with a derivative of its own and would compute it again
        return plain(*args), args

    def back(saved: tuple, cotangent: tuple[Any, Params]) -> tuple[None, Params, Targets, None]:
        index, params, targets, rollout = saved
        _, along = cotangent  # loss and logs are for people: nobody differentiates them

        def slope(params: Params, targets: Targets) -> Array:
            return jax.jvp(lambda p: loss(p, targets, rollout)[0], (params,), (along,))[1]

        along_v, pull_back = jax.vjp(slope, params, targets)
        one = jnp.ones_like(along_v)
        return None, unless_first(index, lambda one: pull_back(one)[0], one), pull_back(one)[1], None

    gradient.defvjp(forward, back)
    return partial(gradient, index)


def unless_first(index: Index, pull_back: Callable[[Any], Any], cotangent: Any) -> Any:
    """Gradients in an agent's parameters, or zeros in the first update of a window.

    No η has touched the agent before it, so nobody asks for them there. All updates are one body of a loop: it takes a
    branch to spare what they cost (figures in docs/discovery-log.md).
    """
    shapes = jax.eval_shape(pull_back, cotangent)
    zeros = lambda _: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)  # noqa: E731
    return jax.lax.cond(index == 0, zeros, pull_back, cotangent)


def split_used(
    function: Callable[[Params], Any], params: Params
) -> tuple[list[Array], list[Array], Callable[[list[Array], list[Array]], Params]]:
    """The arrays among parameters that a function looks at, the others, and how to put both together again.

    A branch returns all that it was asked for: of arrays that nobody looked at, zeros, each a kernel to compile.
    """
    leaves, treedef = jax.tree.flatten(params)
    program = jax.make_jaxpr(lambda leaves: function(treedef.unflatten(leaves)))(leaves).jaxpr
    looked_at = {id(x) for equation in program.eqns for x in equation.invars} | {id(x) for x in program.outvars}
    mine = [id(x) in looked_at for x in program.invars]

    def join(used: list[Array], rest: list[Array]) -> Params:
        sources = iter(rest), iter(used)
        return treedef.unflatten([next(sources[yes]) for yes in mine])

    used, rest = ([x for x, yes in zip(leaves, mine, strict=True) if yes is wanted] for wanted in (True, False))
    return used, rest, join


def constant_at_first(index: Index, network: AgentNetwork) -> AgentNetwork:
    """The network through which a rule looks at an agent, its parameters constants in the first update of a window.

    Gradients go through predictions only: policies and values are facts to a rule (`features.shared_features`), and a
    branch would not know that nothing comes from there.
    """
    stop = jax.lax.stop_gradient

    def guarded(function: Callable) -> Callable:
        """The same function; its first two arguments, parameters and what came of them, have a gradient."""

        def call(params: Params, made: Any, *data: Any) -> Any:
            used, rest, join = split_used(lambda params: function(params, made, *data), params)
            apply = lambda used, made, rest, data: function(join(used, rest), made, *data)  # noqa: E731
            guard = jax.custom_vjp(lambda index, *args: apply(*args))

            def forward(index: Index, used: list[Array], made: Any, *constant: Any) -> tuple[Any, tuple]:
                out, pull_back = jax.vjp(lambda used, made: apply(used, made, *constant), used, made)
                return out, (index, pull_back)

            def back(saved: tuple, cotangent: Any) -> tuple:
                index, pull_back = saved
                return None, *unless_first(index, pull_back, cotangent), None, None

            guard.defvjp(forward, back)
            return guard(index, used, made, rest, data)

        return call

    def heads(params: Params, embedding: Any) -> StateOutput:
        out = network.heads(params, embedding)
        return out._replace(logits=stop(out.logits))

    def model(params: Params, root: Any, action: Array) -> ActionOutput:
        out = network.model(params, root, action)
        return out._replace(q=stop(out.q), aux_pi=stop(out.aux_pi))

    return network._replace(
        unroll=guarded(network.unroll), heads=guarded(heads), root=guarded(network.root), model=guarded(model)
    )


def evolution(sigma: float = 0.02, pairs: int = 4) -> MetaGradient:
    """Antithetic evolution strategies (Salimans et al. 2017, https://arxiv.org/abs/1703.03864).

    Both sides of a pair, and all pairs, live through the same chance events, so that their difference is η's doing.
    """

    def outer(window: Window, eta: Eta, key: Key) -> tuple[Any, Eta]:
        _, rest = window(eta)
        leaves, treedef = jax.tree.flatten(eta)

        def one(total: Eta, key: Key) -> tuple[Eta, None]:
            keys = jax.random.split(key, len(leaves))
            noise = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
            noise = jax.tree.unflatten(treedef, noise)
            plus, minus = (window(_shifted(eta, noise, size))[0].score for size in (sigma, -sigma))
            slope = (minus - plus) / (2 * sigma * pairs)  # of a loss: better is smaller
            return jax.tree.map(lambda t, n: t + slope * n, total, noise), None

        zero = jax.tree.map(jnp.zeros_like, eta)
        grads, _ = jax.lax.scan(one, zero, jax.random.split(key, pairs))
        return rest, grads

    return reverse()._replace(name="evolution", outer=outer)


def _shifted(eta: Eta, noise: Eta, size: float) -> Eta:
    return jax.tree.map(lambda x, n: x + size * n, eta, noise)
