# ci: --updates 20
"""Trains an agent on Catch with a discovered rule, watched from Python.

python examples/catch.py --rule disco103 --seeds 3
"""

import argparse

import discorl


def watch(now) -> None:
    if now.phase == "training":
        print(f"update {now.updates:5d}   return {now.episode_return:+.2f}   {now.seconds_left:4.0f} s left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", help="name of a rule or path of a rule file; the default rule if not given")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    args = parser.parse_args()
    result = discorl.train("catch", args.rule, updates=args.updates, seeds=args.seeds, progress=watch)
    print("average return of each agent:", result.greedy.mean(axis=1).round(2))


if __name__ == "__main__":
    main()
