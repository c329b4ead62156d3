import pytest

pytest.importorskip("torch.nn", reason="needs PyTorch: pip install 'discorl[torch]'")

import torch
import torch_cases as cases
from torch import Tensor, nn

from discorl.errors import DiscorlError
from discorl_torch import DiscoTrainer
from discorl_torch.credit import (
    CreditAdapter,
    completion_rollout,
    credit_from_rollout,
    group_advantages,
    modulate,
    top_k,
)
from discorl_torch.types import Rollout

VOCABULARY, WIDTH, K = 11, 8, 4
PROMPT, T, B = 3, 6, 4


class TinyTransformer(nn.Module):
    """One block of causal attention, randomly initialised."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(PROMPT + T, WIDTH)
        self.block = nn.TransformerEncoderLayer(WIDTH, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Hidden states and logits, [B, L, ...]."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        x = self.embed(tokens) + self.place(torch.arange(length))
        hidden = self.block(x, src_mask=mask, is_causal=True)
        return hidden, 3 * self.head(hidden)


@pytest.fixture(scope="module")
def completions() -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states [T+1, B, D] and logits [T+1, B, V] before each token and after the last, and the tokens [T, B]."""
    torch.manual_seed(0)
    model = TinyTransformer().eval()
    tokens = torch.randint(VOCABULARY, (B, PROMPT))
    with torch.no_grad():
        for _ in range(T):
            logits = model(tokens)[1][:, -1]
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
        hidden, logits = (x[:, PROMPT - 1 :].transpose(0, 1).contiguous() for x in model(tokens))
    return hidden, logits, tokens[:, PROMPT:].t().contiguous()


def ending(T: int = T, B: int = B) -> tuple[Tensor, Tensor]:
    """Rewards and terminal flags: all of it comes with the last token."""
    terminal = torch.zeros(T, B, dtype=torch.bool)
    terminal[-1] = True
    return torch.randn(B, generator=torch.Generator().manual_seed(1)) * terminal, terminal


def test_tokens_outside_the_top_k_take_the_last_place(completions):
    _, logits, tokens = completions
    choice = top_k(logits, tokens, K)
    outside = ~(logits[:-1].topk(K).indices == tokens.unsqueeze(-1)).any(-1)
    assert 0 < outside.sum() < outside.numel()  # both kinds are there
    torch.testing.assert_close(choice.tokens[:-1].gather(-1, choice.action.unsqueeze(-1)).squeeze(-1), tokens)
    torch.testing.assert_close(choice.logits, logits.gather(-1, choice.tokens))
    assert (choice.action[outside] == K - 1).all() and choice.covered.all()


def test_tokens_outside_the_top_k_can_be_masked(completions):
    hidden, logits, tokens = completions
    choice = top_k(logits, tokens, K, missing="mask")
    outside = ~(logits[:-1].topk(K).indices == tokens.unsqueeze(-1)).any(-1)
    torch.testing.assert_close(choice.covered, ~outside)
    torch.testing.assert_close(choice.logits, logits.topk(K).values)
    rollout = completion_rollout(hidden, choice, *ending())
    adapter, rule = CreditAdapter(WIDTH, K, rule=cases.TINY, width=5), cases.tiny_rule()
    credit, _ = credit_from_rollout(rule, adapter, rollout)
    assert (credit[outside] == 0).all() and (credit[~outside] != 0).all()
    ratio = rollout.behaviour_logits.log_softmax(-1) - choice.logits[:-1].log_softmax(-1)
    at = ratio.gather(-1, choice.action.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(at[~outside], torch.zeros(int((~outside).sum())))
    assert (at[outside] > 1).all()  # Retrace stops there
    assert (rollout.discount[:-1] == 1).all()  # but the episode does not end


def test_tokens_outside_the_top_k_can_be_refused(completions):
    _, logits, tokens = completions
    with pytest.raises(DiscorlError, match="tokens are not among the 4 likeliest"):
        top_k(logits, tokens, K, missing="error")
    assert top_k(logits, tokens, VOCABULARY, missing="error").covered.all()


def test_credit_is_per_step_and_its_state_goes_on(completions):
    hidden, logits, tokens = completions
    rollout = completion_rollout(hidden, top_k(logits, tokens, K), *ending())
    torch.manual_seed(0)
    rule, adapter = cases.tiny_rule(), CreditAdapter(WIDTH, K, rule=cases.TINY, width=5)
    credit, state = credit_from_rollout(rule, adapter, rollout)
    assert credit.shape == (T, B) and torch.isfinite(credit).all()
    assert not torch.allclose(credit, credit[:1].expand_as(credit))
    again, later = credit_from_rollout(rule, adapter, rollout, state)
    assert not torch.equal(later.lifetime.hidden, state.lifetime.hidden)
    assert again.shape == (T, B)


def test_what_comes_after_the_end_does_not_count(completions):
    hidden, logits, tokens = completions
    reward, terminal = ending()
    terminal[2, 0] = True  # the first completion ends early; what follows is padding
    reward[2, 0] = 2.0

    def credit(hidden: Tensor, reward: Tensor) -> tuple[Rollout, Tensor]:
        torch.manual_seed(0)
        rollout = completion_rollout(hidden, top_k(logits, tokens, K), reward, terminal)
        adapter = CreditAdapter(WIDTH, K, rule=cases.TINY, width=5)
        with pytest.MonkeyPatch.context() as patch:  # the moments see all steps
            patch.setattr("discorl_torch.values.normalise", lambda _, x, centre=True: x)
            return rollout, credit_from_rollout(cases.tiny_rule(), adapter, rollout)[0]

    rollout, one = credit(hidden, reward)
    assert rollout.valid is not None
    assert rollout.valid[:, 0].tolist() == [True, True, True, False, False, False]
    assert (one[3:, 0] == 0).all()
    changed, paid = hidden.clone(), reward.clone()
    changed[4:, 0] += 1
    paid[4, 0] = 50.0
    torch.testing.assert_close(credit(changed, paid)[1], one)


def test_a_trainer_teaches_the_adapter_what_completions_are_worth(completions):
    hidden, logits, tokens = completions
    choice = top_k(logits, tokens, K)
    reward, terminal = ending()
    reward[-1] = torch.tensor([2.0, 2.0, -2.0, -2.0])
    rollout = completion_rollout(hidden, choice, reward, terminal)
    torch.manual_seed(0)
    rule, adapter = cases.tiny_rule(max_value=4.0), CreditAdapter(WIDTH, K, rule=cases.TINY, width=16)
    trainer = DiscoTrainer(adapter, rule, lr=2e-2, batch_size=4, replay_capacity=4, mask="all")
    first = trainer.step(rollout)
    last = [trainer.update(rollout) for _ in range(150)][-1]
    assert last["q_loss"] < 0.5 * first["q_loss"]
    credit, _ = credit_from_rollout(rule, adapter, rollout, target_adapter=adapter)
    assert torch.isfinite(credit).all()


def test_group_advantages_compare_within_groups():
    reward = torch.tensor([[1.0, 3.0, 5.0], [7.0, 7.0, 7.0]])
    got = group_advantages(reward)
    torch.testing.assert_close(got[0], torch.tensor([-1.0, 0.0, 1.0]), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got[1], torch.zeros(3))
    with pytest.raises(DiscorlError, match="at least 2"):
        group_advantages(torch.tensor([1.0]))


def test_credit_modulates_advantages():
    advantage, credit = torch.tensor([1.0, -1.0]), torch.tensor([[0.5, 0.0], [2.0, 3.0]])
    assert modulate(advantage, credit, 0.0).tolist() == [[1, -1], [1, -1]]
    assert modulate(advantage, credit, 2.0).tolist() == [[2, -1], [5, 5]]
    valid = torch.tensor([[True, True], [False, True]])
    assert modulate(advantage, credit, 2.0, valid).tolist() == [[2, -1], [1, 5]]
    with pytest.raises(DiscorlError, match="do not fit"):
        modulate(torch.zeros(3), credit)


def test_mistakes_are_told_in_one_sentence(completions):
    hidden, logits, tokens = completions
    choice = top_k(logits, tokens, K)
    reward, terminal = ending()
    for call, words in (
        (lambda: top_k(logits, tokens.int(), K), "torch.int32"),
        (lambda: top_k(logits, tokens[:-1], K), r"need int64 \[6, 4\]"),
        (lambda: top_k(logits, tokens, 99), "from 2 to the 11"),
        (lambda: top_k(logits, tokens, K, missing="maks"), "did you mean 'mask'"),  # pyright: ignore
        (lambda: completion_rollout(hidden[:-1], choice, reward, terminal), r"need \[7, 4, D\]"),
        (lambda: completion_rollout(hidden, choice, reward[0], terminal), "one entry per token"),
        (lambda: completion_rollout(hidden, choice, reward * float("nan"), terminal), "NaN"),
    ):
        with pytest.raises(DiscorlError, match=words):
            call()


def test_the_adapter_takes_its_sizes_from_a_rule_its_settings_or_the_published_ones():
    for rule in (cases.tiny_rule(), cases.TINY):
        adapter = CreditAdapter(WIDTH, K, rule=rule, width=5)
        assert (adapter.z.out_features, adapter.q.out_features) == (cases.TINY.predictions, cases.TINY.value_bins)
    published = CreditAdapter(WIDTH, K)
    assert (published.y.out_features, published.q.out_features) == (600, 601)
    logits, memory = published.act({"hidden": torch.zeros(B, WIDTH), "logits": torch.ones(B, K)}, torch.ones(B), ())
    assert torch.equal(logits, torch.ones(B, K)) and memory == ()  # the language model acts, the adapter judges


def test_without_a_mask_every_step_gets_credit_and_values_come_from_the_target_adapter(completions):
    hidden, logits, tokens = completions
    masked = completion_rollout(hidden, top_k(logits, tokens, K, missing="mask"), *ending())
    assert masked.valid is not None and not masked.valid.all()
    torch.manual_seed(0)
    rule, (adapter, other) = cases.tiny_rule(), (CreditAdapter(WIDTH, K, rule=cases.TINY, width=5) for _ in range(2))
    every = credit_from_rollout(rule, adapter, masked._replace(valid=None)).credit
    assert (every[~masked.valid] != 0).all()
    torch.testing.assert_close(every * masked.valid, credit_from_rollout(rule, adapter, masked).credit)
    same, moved = (credit_from_rollout(rule, adapter, masked, target_adapter=x).credit for x in (adapter, other))
    torch.testing.assert_close(same, every * masked.valid)
    assert not torch.allclose(moved, same)
