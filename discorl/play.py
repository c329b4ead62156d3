"""Episodes of saved agents, as text or as a film."""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from discorl import acting, checkpoints, experiment, runs
from discorl.envs import Environment, HostEnvironment
from discorl.envs.adapters.libraries import library
from discorl.envs.adapters.pure import picture as text_picture
from discorl.errors import DiscorlError, require_positive
from discorl.experiment import Agent
from discorl.networks import AgentNetwork
from discorl.settings import Settings
from discorl.types import Params

CELL = 16  # pixels per character
FILM_SIDE = 480  # pixels that the longer side of a small film comes close to
EMPTY = " .·"  # characters that mean nothing is there
BACKGROUND, INK = (24, 26, 31), (236, 236, 236)
COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (213, 94, 0),
    (204, 121, 167),
    (240, 228, 66),
    (0, 114, 178),
    (150, 150, 150),
)  # Okabe & Ito: told apart by colour-blind people too


Walk = Callable[[jax.Array, int, int], Iterator["Frame"]]  # one episode: key, its number, its longest length


class Player(NamedTuple):
    """Saved agents, ready to act."""

    settings: Settings
    env: Environment | HostEnvironment
    network: AgentNetwork
    params: Params  # [seeds, ...]


class Frame(NamedTuple):
    """What there is to see before an action, or, with `action` None, at the end of an episode."""

    episode: int  # from 1
    step: int
    picture: str | np.ndarray  # text, or RGB where the environment draws itself
    action: str | None
    episode_return: float  # so far


def load(run_dir: str | Path, env: Any = None, agent: Agent | None = None) -> Player:
    """The agents of a run. Objects that were given to `train` must be given again."""
    folder = Path(run_dir)
    config, needs = runs.read_agents(folder)
    environment = experiment.environment_of(env or config.env, config)
    network = experiment.build_network(agent or config.agent, environment.spec, needs, config)
    keys = jax.random.split(jax.random.key(0), config.seeds)
    params = checkpoints.load(folder / runs.AGENT, jax.eval_shape(jax.vmap(network.init), keys))
    return Player(settings=config, env=environment, network=network, params=params)


def play(
    player: Player,
    *,
    episodes: int = 3,
    greedy: bool = False,
    seed: int = 0,
    which: int = 0,
    max_steps: int = 1000,
    draw: bool = False,
) -> Iterator[Frame]:
    """Frames of whole episodes of agent number `which`; an episode is left after `max_steps`.

    With `draw`, environments that Python steps are shown as they draw themselves, otherwise as text.
    """
    require_positive("episodes", episodes)
    require_positive("max_steps", max_steps)
    if not 0 <= which < player.settings.seeds:
        raise DiscorlError(f"there is no agent {which} in this run: it has {player.settings.seeds}, counted from 0")
    params = jax.tree.map(lambda x: x[which], player.params)
    env, network = player.env, player.network
    if isinstance(env, HostEnvironment):
        walk = _host_walk(env, network, params, greedy, draw)
    else:
        walk = _walk(env, network, params, greedy)
    for episode in range(episodes):
        yield from walk(jax.random.fold_in(jax.random.key(seed), episode), episode + 1, max_steps)


def _names(env: Environment | HostEnvironment) -> tuple[str, ...]:
    return env.spec.action_names or tuple(str(i) for i in range(env.spec.num_actions))


def _walk(env: Environment, network: AgentNetwork, params: Params, greedy: bool) -> Walk:
    """Episodes of an environment that compiles."""
    names = _names(env)

    @jax.jit
    def move(key: jax.Array, state: Any, memory: Any, obs: Any, first: jax.Array) -> tuple[Any, Any, Any, Any]:
        key_act, key_env = jax.random.split(key)
        batched = jax.tree.map(lambda x: x[None], obs)
        acted = acting.act(network, params, memory, batched, first[None], key_act, greedy=greedy)
        state, after = env.step(key_env, state, acted.action[0])
        return acted.action[0], acted.memory, state, after

    def walk(key: jax.Array, episode: int, max_steps: int) -> Iterator[Frame]:
        key_reset, key_walk = jax.random.split(key)
        state, obs = jax.jit(env.reset)(key_reset)
        memory, total, step = network.memory(1), 0.0, 0
        for step in range(max_steps):
            picture = env.render(state)
            first = jnp.asarray(step == 0)
            action, memory, state, after = move(jax.random.fold_in(key_walk, step), state, memory, obs, first)
            yield Frame(episode, step, picture, names[int(action)], total)
            obs, total = after.obs, total + float(after.reward)
            if after.terminated or after.truncated:
                break
        yield Frame(episode, step + 1, env.render(state), None, total)

    return walk


def _host_walk(env: HostEnvironment, network: AgentNetwork, params: Params, greedy: bool, draw: bool) -> Walk:
    """Episodes of an environment that Python steps: as it draws itself, or as text of what the agent sees."""
    if env.size not in (None, 1):
        raise DiscorlError(f"{env.spec.name!r} was given as {env.size} environments in one; give a single one to play")
    names = _names(env)
    act = jax.jit(partial(acting.act, network, greedy=greedy))

    def walk(key: jax.Array, episode: int, max_steps: int) -> Iterator[Frame]:
        key_reset, key_walk = jax.random.split(key)
        vector = env.open(1, render=draw)
        try:
            obs, memory, total, step = vector.reset(int(jax.random.bits(key_reset)) >> 1), network.memory(1), 0.0, 0
            drawn = None
            for step in range(max_steps):
                acted = act(params, memory, obs, np.array([step == 0]), jax.random.fold_in(key_walk, step))
                drawn = vector.render() if draw else None
                shown = text_picture(jax.tree.map(lambda x: x[0], obs)) if drawn is None else drawn
                yield Frame(episode, step, shown, names[int(acted.action[0])], total)
                came = vector.step(np.asarray(acted.action))
                memory, total = acted.memory, total + float(came.reward[0])
                obs, ended = came.final_obs, came.terminated[0] or came.truncated[0]
                if ended:
                    break
            # by now it has begun anew, so that the end itself can only be told, not drawn
            last = text_picture(jax.tree.map(lambda x: x[0], obs)) if drawn is None else drawn
            yield Frame(episode, step + 1, last, None, total)
        finally:
            vector.close()

    return walk


def caption(frame: Frame) -> str:
    """One line about a frame."""
    what = f"action {frame.action}" if frame.action is not None else f"end, return {frame.episode_return:g}"
    return f"episode {frame.episode}, step {frame.step}: {what}"


# Films ---------------------------------------------------------------------------------------------------------------


def film_writer(path: str | Path) -> Callable[[list[Frame], float], None]:
    """What writes frames to that path, by its ending: a GIF, or an MP4 if the library for it is there.

    Ask before playing: whoever cannot write should not play for an hour first.
    """
    ending = Path(path).suffix.lower()
    if ending in ("", ".gif"):
        return partial(write_gif, path)
    if ending == ".mp4":
        _ffmpeg(path)
        return partial(write_mp4, path)
    raise DiscorlError(f"cannot write {path}: films end in .gif or .mp4")


def write_gif(path: str | Path, frames: list[Frame], frames_per_second: float = 6.0) -> None:
    """An animated picture that begins again and again, and lingers where episodes end."""
    require_positive("frames per second", frames_per_second)
    pause, images = round(1000 / frames_per_second), pictures(frames)
    try:
        images[0].save(
            path,
            format="GIF",
            save_all=True,
            append_images=images[1:],
            duration=[pause * _lingering(frame) for frame in frames],
            loop=0,
        )
    except OSError as error:
        raise DiscorlError(f"cannot write {path}: {error.strerror or error}") from error


def write_mp4(path: str | Path, frames: list[Frame], frames_per_second: float = 6.0) -> None:
    """The same as a film (H.264), enlarged if it is small: players blur what they enlarge themselves."""
    require_positive("frames per second", frames_per_second)
    images = pictures(frames)
    width, height = images[0].size
    scale = max(1, FILM_SIDE // max(width, height))
    # a pixel of colour covers two by two, so that sides must be even
    filters = f"scale={width * scale}:{height * scale}:flags=neighbor,pad=ceil(iw/2)*2:ceil(ih/2)*2"
    sent = f"-f rawvideo -pix_fmt rgb24 -s {width}x{height} -r {frames_per_second} -i -".split()
    kept = f"-vf {filters} -c:v libx264 -pix_fmt yuv420p -movflags +faststart".split()
    with tempfile.TemporaryDirectory() as folder:
        draft, log = Path(folder) / "film.mp4", Path(folder) / "log"
        command = [_ffmpeg(path), "-loglevel", "error", *sent, *kept, str(draft)]
        with log.open("wb") as errors:
            ffmpeg = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)
        with contextlib.suppress(BrokenPipeError), ffmpeg:  # if it listens no more, it has said why
            assert ffmpeg.stdin is not None
            for image, frame in zip(images, frames, strict=True):
                ffmpeg.stdin.write(image.convert("RGB").tobytes() * _lingering(frame))
        if ffmpeg.returncode or not draft.exists():
            said = log.read_text("utf-8", "replace").strip().splitlines() or [f"it ended with {ffmpeg.returncode}"]
            raise DiscorlError(f"ffmpeg could not make {path}: {said[-1]}; a GIF needs no ffmpeg")
        written = draft.read_bytes()
    checkpoints.write_atomically(Path(path), lambda file: file.write(written))


def _ffmpeg(path: str | Path) -> str:
    """The program that the library brings, or the one that IMAGEIO_FFMPEG_EXE names."""
    finder = library("imageio_ffmpeg", "video", f"the film {path}")
    try:
        program = finder.get_ffmpeg_exe()
    except RuntimeError as error:
        raise DiscorlError(f"the film {path} needs ffmpeg: {error}") from error
    if shutil.which(program) is None:
        raise DiscorlError(f"the film {path} needs ffmpeg, but {program} is none: see IMAGEIO_FFMPEG_EXE")
    return program


def pictures(frames: list[Frame]) -> list[Any]:
    """Images of Pillow's. Every character of a text is drawn as a cell, coloured if the texts are maps."""
    from PIL import Image, ImageDraw

    lines = [frame.picture.splitlines() or [""] for frame in frames if isinstance(frame.picture, str)] or [[""]]
    height, width = max(map(len, lines)), max(max(map(len, picture)) for picture in lines)
    seen = sorted({c for picture in lines for line in picture for c in line} - set(EMPTY))
    colour = {c: COLOURS[i % len(COLOURS)] for i, c in enumerate(seen)}
    # Several lines of one length are a map, anything else is text to be read.
    is_map = all(len(picture) > 1 and len({len(line) for line in picture}) == 1 for picture in lines)

    def draw(picture: list[str]) -> Image.Image:
        image = Image.new("RGB", (max(width, 1) * CELL, height * CELL), BACKGROUND)
        pen = ImageDraw.Draw(image)
        for row, line in enumerate(picture):
            for column, c in enumerate(line):
                x, y = column * CELL, row * CELL
                if is_map and c in colour:
                    pen.rectangle((x + 1, y + 1, x + CELL - 2, y + CELL - 2), fill=colour[c])
                elif not is_map:
                    pen.text((x + CELL // 2, y + CELL // 2), c, fill=INK, anchor="mm")
        return image

    return [
        draw(frame.picture.splitlines() or [""]) if isinstance(frame.picture, str) else Image.fromarray(frame.picture)
        for frame in frames
    ]


def _lingering(frame: Frame) -> int:
    """How many times as long as others it is seen."""
    return 1 if frame.action is not None else 4
