# ci: --rollouts 12 --log-every 4
"""CartPole from Gymnasium in PyTorch with a discovered rule.

    pip install 'discorl[torch]' gymnasium
    python examples/torch_cartpole.py --rollouts 3000

Shows what an environment with a clock needs: episodes that the clock ends are not over, so what they would still have
been worth counts as earned by their last step (`future_value`).
"""

import argparse

import gymnasium
import torch

from discorl_torch import DiscoAgent, DiscoRule, DiscoTrainer, MLPTorso, collect_rollout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", help="name of a rule or path of a rule file; the default rule if not given")
    parser.add_argument("--rollouts", type=int, default=3000)
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log-every", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(args.seed)

    same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
    env = gymnasium.make_vec("CartPole-v1", args.envs, vectorization_mode="sync", vector_kwargs=same_step)
    example = env.single_observation_space.sample()
    rule = DiscoRule.from_file(args.rule)
    agent = DiscoAgent(MLPTorso(4, (256, 256)), example, num_actions=2, rule=rule)  # heads of the sizes it asks for
    trainer = DiscoTrainer(agent, rule, lr=args.lr, batch_size=32, replay_capacity=256, mask="all", seed=args.seed)

    obs, state = env.reset(seed=args.seed)[0], None
    length, lengths = torch.zeros(args.envs), []
    for i in range(1, args.rollouts + 1):
        rollout, obs, state = collect_rollout(agent, env, obs, state, 28, future_value=trainer.future_value)
        logs = trainer.step(rollout)
        for ended in rollout.discount == 0:
            length += 1
            lengths += length[ended].tolist()
            length[ended] = 0
        if i % args.log_every == 0:
            recent = lengths[-20:]
            mean = sum(recent) / max(1, len(recent))
            entropy = logs.get("entropy", float("nan"))
            print(f"rollout {i:>5}   mean length of the last episodes {mean:5.1f}   entropy {entropy:.2f}", flush=True)


if __name__ == "__main__":
    main()
