import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import copy

import torch
import torch_cases as cases
from torch import Tensor
from torch.nn import functional as F

from discorl.errors import DiscorlError
from discorl_torch.agent import DiscoAgent
from discorl_torch.distributions import entropy
from discorl_torch.learner import Learner, loss_mask
from discorl_torch.optim import ClippedAdam
from discorl_torch.torsos import MLPTorso, RecurrentTorso
from discorl_torch.types import Experience, Rollout, Targets
from discorl_torch.views import see, see_and_take


def make(lr: float = 1e-2, num_actions: int = 3, **options) -> Learner:
    agent = cases.tiny_agent(num_actions)
    return Learner(agent, cases.tiny_rule(), ClippedAdam(agent.parameters(), lr=lr), **options)


def plain_loss(agent: DiscoAgent, targets: Targets, rollout: Rollout, rule, mask: Tensor) -> Tensor:
    """The loss as the paper writes it: every head of every action, dense targets, autograd all the way."""
    out = agent(rollout.obs, rollout.first)
    index = rollout.action[..., None, None]
    taken = {
        k: out[k][:-1].gather(2, index.expand(*index.shape[:3], out[k].shape[-1])).squeeze(2)
        for k in ("z", "q", "aux_pi")
    }

    def kl(p: Tensor, q: Tensor) -> Tensor:
        return F.kl_div(q.log_softmax(-1), p.log_softmax(-1), reduction="none", log_target=True).sum(-1)

    x = targets.value.sign() * ((targets.value.abs() + 1).sqrt() - 1) + 1e-3 * targets.value
    step = rule.bins[1] - rule.bins[0]
    position = (x.clamp(rule.bins[0], rule.bins[-1]) - rule.bins[0]) / step
    weight = ((position.ceil() - position) * step / ((position.ceil() - position.floor()) * step + 1e-5)).unsqueeze(-1)
    lower, upper = (F.one_hot(p.long(), len(rule.bins)) for p in (position.floor(), position.ceil()))
    value = -((weight * lower + (1 - weight) * upper) * taken["q"].log_softmax(-1)).sum(-1)
    losses = kl(targets.pi.logits, out["logits"][:-1]) + kl(targets.y.logits, out["y"][:-1])
    losses = losses + kl(targets.z.logits, taken["z"])
    losses = losses + rollout.discount * kl(out["logits"][1:].detach(), taken["aux_pi"]) + 0.2 * value
    return (mask * losses).sum() / (mask.sum() + 1e-8)


@pytest.mark.parametrize("T, B, A", [(1, 1, 2), (5, 3, 3), (30, 70, 4)])
def test_loss_and_gradient_equal_the_plain_formula(T, B, A):
    learner, rollout = make(num_actions=A), cases.random_rollout(T, B, A)
    agent, rule = learner.agent, learner.rule
    assert isinstance(agent, DiscoAgent)
    said, online = see_and_take(agent, rule, rollout)
    targets, _ = rule.targets(rule.start(), Experience(rollout, online, online))
    # targets far from the outputs, so that no gradient is nothing but rounding
    mask = loss_mask(rollout, "all")
    losses, _ = rule.loss(said, targets, rollout)
    total = (mask * losses).sum() / (mask.sum() + 1e-8)
    total.backward()
    plain = copy.deepcopy(agent)
    expected = plain_loss(plain, targets, rollout, rule, mask)
    plain.zero_grad()
    expected.backward()
    torch.testing.assert_close(total, expected, rtol=1e-5, atol=1e-6)
    for (name, p), other in zip(agent.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(p.grad, other.grad, rtol=1e-4, atol=1e-6, msg=lambda m, name=name: f"{name}: {m}")


@pytest.mark.parametrize("T, B, A", [(3, 2, 2), (9, 100, 5)])
def test_the_view_is_the_same_from_both_passes(T, B, A):
    """One visits actions in order, the other from the taken one on; both in stretches of time."""
    agent, rule, rollout = cases.tiny_agent(A), cases.tiny_rule(), cases.random_rollout(T, B, A)
    _, one = see_and_take(agent, rule, rollout)
    two = see(agent, rule, rollout)
    torch.testing.assert_close(one, two)
    out = agent(rollout.obs, rollout.first)
    digest = rule.digest(out["z"].softmax(-1), out["q"].softmax(-1))
    torch.testing.assert_close(two.actions, digest)


def test_masks():
    rollout = cases.random_rollout()
    reference, every = (loss_mask(rollout, mask) for mask in ("reference", "all"))
    assert (every == 1).all()
    torch.testing.assert_close(reference, 1 - rollout.first[:-1].float())
    valid = torch.rand(rollout.action.shape) > 0.5
    torch.testing.assert_close(loss_mask(rollout._replace(valid=valid), "all"), valid.float())


def test_masked_steps_do_not_teach():
    """What was done in a masked step changes the targets of others, but given the targets not the gradient."""
    learner, rollout = make(), cases.random_rollout()
    rule = learner.rule
    said, online = see_and_take(learner.network, rule, rollout)
    targets, _ = rule.targets(rule.start(), Experience(rollout, online, online))
    mask = loss_mask(rollout, "reference")
    assert 0 < mask.sum() < mask.numel()

    def gradient(targets: Targets) -> list[Tensor]:
        losses, _ = rule.loss(see_and_take(learner.network, rule, rollout)[0], targets, rollout)
        return list(torch.autograd.grad((mask * losses).sum(), list(learner.agent.parameters())))

    moved = targets._replace(value=targets.value + 3 * (1 - mask))
    for one, two in zip(gradient(targets), gradient(moved), strict=True):
        torch.testing.assert_close(one, two, rtol=0, atol=0)
    moved = targets._replace(value=targets.value + 3 * mask)
    assert any((one != two).any() for one, two in zip(gradient(targets), gradient(moved), strict=True))
    assert said.y.p.requires_grad is False


def test_target_parameters_follow_those_of_before_the_step():
    learner = make()
    for p in learner.target_agent.parameters():
        p.mul_(0.5)
    before = [
        (a.clone(), b.clone())
        for a, b in zip(learner.agent.parameters(), learner.target_agent.parameters(), strict=True)
    ]
    learner.update(cases.random_rollout())
    for (new, old), now in zip(before, learner.target_agent.parameters(), strict=True):
        torch.testing.assert_close(now, 0.9 * old + 0.1 * new)
    assert any((a != b).any() for (a, _), b in zip(before, learner.agent.parameters(), strict=True))


def test_buffers_of_the_agent_reach_its_target():
    learner = make()
    for agent in (learner.agent, learner.target_agent):
        agent.register_buffer("statistic", torch.zeros(3))
    learner.agent.get_buffer("statistic").add_(2)
    learner.update(cases.random_rollout())
    assert (learner.target_agent.get_buffer("statistic") == 2).all()


def test_adam_without_a_clip_is_adam():
    torch.manual_seed(0)
    start = torch.randn(40)
    ours, theirs = (start.clone().requires_grad_() for _ in range(2))
    one = ClippedAdam([ours], lr=3e-2, max_update=1e9)
    two = torch.optim.Adam([theirs], lr=3e-2)
    for i in range(5):
        grad = torch.randn(40) * 10 ** (i - 2)
        for p, optimizer in ((ours, one), (theirs, two)):
            p.grad = grad.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_adam_is_clipped_before_the_learning_rate_and_tells_the_norm():
    p = torch.zeros(4, requires_grad=True)
    optimizer = ClippedAdam([p], lr=0.1, max_update=0.25)
    p.grad = torch.tensor([1.0, -2.0, 3.0, 0.0])
    norm = optimizer.step()
    torch.testing.assert_close(p.detach(), torch.tensor([-0.025, 0.025, -0.025, 0.0]))
    torch.testing.assert_close(norm, p.detach().norm())


def test_weight_decay_is_decoupled():
    p = torch.full((2,), 4.0, requires_grad=True)
    optimizer = ClippedAdam([p], lr=0.1, weight_decay=0.5)
    p.grad = torch.zeros(2)
    optimizer.step()
    torch.testing.assert_close(p.detach(), torch.full((2,), 4.0 - 0.1 * 0.5 * 4))


def test_learning_moves_outputs_towards_their_targets():
    learner, rollout = make(lr=3e-3), cases.random_rollout(8, 8)
    first = learner.update(rollout)
    last = [learner.update(rollout) for _ in range(60)][-1]
    assert last["q_loss"] < 0.9 * first["q_loss"]
    assert all(torch.isfinite(x) for x in last.values())


def test_a_loss_that_is_not_finite_stops_before_it_spoils_the_agent():
    learner, rollout = make(), cases.random_rollout()
    learner.update(rollout)
    before = [p.clone() for p in learner.agent.parameters()]
    state = learner.rule_state
    with pytest.raises(DiscorlError, match="no longer finite"):
        learner.update(rollout._replace(obs=rollout.obs * float("nan")))
    assert learner.rule_state is state
    for p, old in zip(learner.agent.parameters(), before, strict=True):
        torch.testing.assert_close(p, old, rtol=0, atol=0)


def test_recurrent_agents_learn_from_the_memory_they_had():
    torch.manual_seed(0)
    torso = RecurrentTorso(MLPTorso(4, (6,)), 6, width=5)
    agent = DiscoAgent(torso, torch.zeros(4), 3, rule=cases.TINY, model_width=5, head_hidden=(6,))
    rollout = cases.random_rollout(6, 2)
    rollout = rollout._replace(memory=(torch.randn(2, 5), torch.randn(2, 5)), first=torch.zeros(7, 2, dtype=torch.bool))
    whole, _ = agent.unroll(rollout.obs, rollout.first, rollout.memory)
    # step by step, as acting does
    memory = rollout.memory
    for t in range(7):
        logits, memory = agent.act(rollout.obs[t], rollout.first[t], memory)
        torch.testing.assert_close(logits, whole.logits[t])
    # and an episode that begins forgets
    first = rollout.first.clone()
    first[3] = True
    cut, _ = agent.unroll(rollout.obs, first, rollout.memory)
    fresh, _ = agent.unroll(rollout.obs[3:], first[3:], agent.initial_memory(2))
    torch.testing.assert_close(cut.logits[3:], fresh.logits)
    assert not torch.allclose(cut.logits[3:], whole.logits[3:])
    learner = Learner(agent, cases.tiny_rule(), ClippedAdam(agent.parameters()))
    assert torch.isfinite(learner.update(rollout)["total_loss"])


def test_entropy_of_logs_is_that_of_the_policy():
    learner, rollout = make(), cases.random_rollout()
    said, _ = see_and_take(learner.network, learner.rule, rollout)
    logs = learner.update(rollout)
    torch.testing.assert_close(logs["entropy"], entropy(said.policy)[:-1].mean().detach())
