"""Scores of random play and of people on the 57 Atari games, to normalise other scores by.

    normalised = (score - random) / (human - random)          0: random play, 1: a professional games tester

The measure is that of Mnih et al. 2015 (https://doi.org/10.1038/nature14236), the figures are those of Wang et al. 2016
(https://arxiv.org/abs/1511.06581, table for games that begin with up to 30 actions of nothing), which Badia et al. 2020
(https://arxiv.org/abs/2003.13350) and most others use since; checked against their transcriptions in the repositories
google-deepmind/dqn_zoo and seungjaeryanlee/rldb. They were measured without the sticky actions that games here have.
"""

import re
from typing import NamedTuple


class Yardstick(NamedTuple):
    random: float
    human: float

    def normalised(self, score: float) -> float:
        return (score - self.random) / (self.human - self.random)


SCORES = {
    "alien": Yardstick(227.8, 7127.7),
    "amidar": Yardstick(5.8, 1719.5),
    "assault": Yardstick(222.4, 742.0),
    "asterix": Yardstick(210.0, 8503.3),
    "asteroids": Yardstick(719.1, 47388.7),
    "atlantis": Yardstick(12850.0, 29028.1),
    "bank_heist": Yardstick(14.2, 753.1),
    "battle_zone": Yardstick(2360.0, 37187.5),
    "beam_rider": Yardstick(363.9, 16926.5),
    "berzerk": Yardstick(123.7, 2630.4),
    "bowling": Yardstick(23.1, 160.7),
    "boxing": Yardstick(0.1, 12.1),
    "breakout": Yardstick(1.7, 30.5),
    "centipede": Yardstick(2090.9, 12017.0),
    "chopper_command": Yardstick(811.0, 7387.8),
    "crazy_climber": Yardstick(10780.5, 35829.4),
    "defender": Yardstick(2874.5, 18688.9),
    "demon_attack": Yardstick(152.1, 1971.0),
    "double_dunk": Yardstick(-18.6, -16.4),
    "enduro": Yardstick(0.0, 860.5),
    "fishing_derby": Yardstick(-91.7, -38.7),
    "freeway": Yardstick(0.0, 29.6),
    "frostbite": Yardstick(65.2, 4334.7),
    "gopher": Yardstick(257.6, 2412.5),
    "gravitar": Yardstick(173.0, 3351.4),
    "hero": Yardstick(1027.0, 30826.4),
    "ice_hockey": Yardstick(-11.2, 0.9),
    "jamesbond": Yardstick(29.0, 302.8),
    "kangaroo": Yardstick(52.0, 3035.0),
    "krull": Yardstick(1598.0, 2665.5),
    "kung_fu_master": Yardstick(258.5, 22736.3),
    "montezuma_revenge": Yardstick(0.0, 4753.3),
    "ms_pacman": Yardstick(307.3, 6951.6),
    "name_this_game": Yardstick(2292.3, 8049.0),
    "phoenix": Yardstick(761.4, 7242.6),
    "pitfall": Yardstick(-229.4, 6463.7),
    "pong": Yardstick(-20.7, 14.6),
    "private_eye": Yardstick(24.9, 69571.3),
    "qbert": Yardstick(163.9, 13455.0),
    "riverraid": Yardstick(1338.5, 17118.0),
    "road_runner": Yardstick(11.5, 7845.0),
    "robotank": Yardstick(2.2, 11.9),
    "seaquest": Yardstick(68.4, 42054.7),
    "skiing": Yardstick(-17098.1, -4336.9),
    "solaris": Yardstick(1236.3, 12326.7),
    "space_invaders": Yardstick(148.0, 1668.7),
    "star_gunner": Yardstick(664.0, 10250.0),
    "surround": Yardstick(-10.0, 6.5),
    "tennis": Yardstick(-23.8, -8.3),
    "time_pilot": Yardstick(3568.0, 5229.2),
    "tutankham": Yardstick(11.4, 167.6),
    "up_n_down": Yardstick(533.4, 11693.2),
    "venture": Yardstick(0.0, 1187.5),
    "video_pinball": Yardstick(16256.9, 17667.9),
    "wizard_of_wor": Yardstick(563.5, 4756.5),
    "yars_revenge": Yardstick(3092.9, 54576.9),
    "zaxxon": Yardstick(32.5, 9173.3),
}
_BY_LETTERS = {game.replace("_", ""): scores for game, scores in SCORES.items()}
_NAME = re.compile(r"atari:(\w+)(?:/full)?|ALE/(\w+)-v[0-9]+")  # our name, or Gymnasium's id


def yardstick(env: str) -> Yardstick | None:
    """Of the game that an environment's name means; None if it is no game of these."""
    match = _NAME.fullmatch(env)
    return _BY_LETTERS.get((match[1] or match[2]).replace("_", "").lower()) if match else None
