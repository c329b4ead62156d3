"""The command line: parses, calls the library, prints. JAX is imported only by commands that compute."""

import argparse
import io
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from discorl import options, presets, settings
from discorl.discovery.settings import PRESETS, DiscoverySettings, preset
from discorl.errors import DiscorlError, near_matches
from discorl.interrupts import Interrupts
from discorl.settings import Settings

MISTAKE = 2  # exit code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that knows few characters gets '?' for the others
            stream.reconfigure(errors="replace")
    try:
        given = parse(arguments)
        return given.command(given)
    except DiscorlError as error:
        print(f"discorl: error: {error}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # `discorl envs | head -1`: whoever read has had enough
        from discorl.console import deafen

        deafen()
        return 0


# Parsing --------------------------------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """Mistakes become one sentence instead of a page of usage."""

    def error(self, message: str) -> NoReturn:
        raise DiscorlError(f"{message} (see `{self.prog} --help`)")

    def flags(self) -> list[str]:
        return list(self._option_string_actions)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _Parser(prog="discorl", description="Reinforcement-learning update rules that were discovered.")
    parser.add_argument("--version", action="version", version=f"discorl {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    parsers = {
        name: commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", allow_abbrev=False)
        for name, text in (
            ("train", "train agents on an environment"),
            ("discover", "discover an update rule by meta-gradient"),
            ("evaluate", "judge the agents of a run on many episodes"),
            ("play", "show episodes of a trained agent"),
            ("rules", "list update rules"),
            ("envs", "list environments"),
        )
    }
    _add_train(parsers["train"])
    _add_discover(parsers["discover"])
    _add_evaluate(parsers["evaluate"])
    _add_play(parsers["play"])
    parsers["rules"].set_defaults(command=_rules)
    parsers["envs"].set_defaults(command=_envs)
    given, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = next(p for p in parsers.values() if p.get_default("command") is given.command)
        raise DiscorlError(f"unknown argument {unknown[0]!r}; {near_matches(unknown[0], chosen.flags())}")
    return given


def _add_options(
    parser: argparse.ArgumentParser, kind: type, describe: Callable[[str], str], leave_out: str = ""
) -> dict[str, Any]:
    """One flag per option, in groups, which are returned."""
    groups: dict[str, Any] = {}
    for field in fields(kind):
        if field.name == leave_out:
            continue
        title, flag = field.metadata["group"], "--" + field.name.replace("_", "-")
        groups.setdefault(title, parser.add_argument_group(title))
        plain, _ = options.plain_type(kind, field.name)
        if plain is bool:
            groups[title].add_argument(flag, action=argparse.BooleanOptionalAction, help=describe(field.name))
            continue
        groups[title].add_argument(
            flag,
            type=options.from_flag(kind, field.name),
            metavar="DIR" if field.name == "run_dir" else {int: "N", float: "X", str: "NAME", tuple: "N,N"}[plain],
            help=describe(field.name),
        )
    return groups


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.usage = "discorl train ENV [options]"
    parser.set_defaults(command=_train)
    parser.add_argument("env", nargs="?", metavar="ENV", help=_help("env"))
    groups = _add_options(parser, Settings, _help, leave_out="env")
    known = "; ".join(f"{name}: {each.text}" for name, each in presets.PRESETS.items())
    groups["what"].add_argument(
        "--preset", metavar="NAME", help=f"settings that --config and flags override. {known} (docs/presets.md)"
    )
    files = groups["run"]
    files.add_argument("--config", metavar="FILE", help="settings in a TOML file; flags override them")
    files.add_argument("--resume", metavar="RUN", help="go on with a run folder exactly where it stopped")
    _add_cache(files)


def _add_discover(parser: argparse.ArgumentParser) -> None:
    parser.usage = "discorl discover [options]"
    parser.set_defaults(command=_discover)
    groups = _add_options(parser, DiscoverySettings, _discovery_help)
    known = "; ".join(f"{name}: {text}" for name, (text, _) in PRESETS.items())
    groups["what"].add_argument("--preset", metavar="NAME", help=f"settings that flags override. {known}")
    files = groups["run"]
    files.add_argument("--config", metavar="FILE", help="settings in a TOML file; flags override them")
    files.add_argument("--resume", metavar="RUN", help="go on with a run folder exactly where it stopped")
    files.add_argument(
        "--distributed",
        metavar="WHERE",
        help="be one of many processes that share the agents: auto on clusters that JAX knows, else "
        "ADDRESS:PORT,COUNT,INDEX",
    )
    _add_cache(files)


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_evaluate)
    parser.add_argument("run", metavar="RUN", help="folder that `discorl train` made; the result is kept there too")
    parser.add_argument(
        "--episodes", type=int, default=100, metavar="N", help="of each agent, greedily and by sampling (default: 100)"
    )
    parser.add_argument("--seed", type=int, metavar="N", help="of the episodes (default: the run's own)")
    parser.add_argument("--env", metavar="ENV", help="another environment of the same shapes")
    parser.add_argument("--json", action="store_true", help="print all that was found as JSON")
    _add_cache(parser)


def _add_play(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_play)
    parser.add_argument("run", metavar="RUN", help="folder that `discorl train` made")
    parser.add_argument("--episodes", type=int, default=3, metavar="N", help="how many (default: 3)")
    parser.add_argument("--greedy", action="store_true", help="take the likeliest action instead of drawing one")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the episodes (default: 0)")
    parser.add_argument("--which", type=int, default=0, metavar="N", help="agent of a run with --seeds (default: 0)")
    parser.add_argument("--max-steps", type=int, default=1000, metavar="N", help="per episode (default: 1000)")
    parser.add_argument(
        "--out",
        "--gif",
        metavar="FILE",
        help="write a film instead of text: a GIF, or FILE.mp4, which needs `pip install 'discorl[video]'`",
    )
    parser.add_argument("--fps", type=float, default=6.0, metavar="X", help="frames per second (default: 6)")
    _add_cache(parser)


def _add_cache(parser: Any) -> None:
    place = "$XDG_CACHE_HOME/discorl/jax or ~/.cache/discorl/jax"
    parser.add_argument("--cache-dir", metavar="DIR", help=f"where compiled programs are kept (default: {place})")
    parser.add_argument("--no-cache", action="store_true", help="keep no compiled programs")


def _help(name: str) -> str:
    field = next(f for f in fields(Settings) if f.name == name)
    text, default = field.metadata["help"], (settings.DEFAULTS | settings.SIZE_DEFAULTS).get(name, field.default)
    owners = settings.RULE_DEFAULTS | settings.AGENT_DEFAULTS
    if name == "rule":
        default = "the bundled rule, else disco103"
    if name == "env":
        return text
    shown = [] if default in (None, ()) else [_shown(default)]
    shown += [f"{owner}: {_shown(own[name])}" for owner, own in owners.items() if name in own]
    return f"{text} (default: {'; '.join(shown)})".replace("%", "%%") if shown else text


def _discovery_help(name: str) -> str:
    field = next(f for f in fields(DiscoverySettings) if f.name == name)
    default = "" if field.default is None else f" (default: {_shown(field.default)})"
    return (field.metadata["help"] + default).replace("%", "%%")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("discorl")
    except metadata.PackageNotFoundError:
        return "(not installed)"


# Commands -------------------------------------------------------------------------------------------------------------


def _train(given: argparse.Namespace) -> int:
    flags = {name: getattr(given, name) for name in settings.NAMES}
    values = settings.merge(settings.read(given.config) if given.config else {}, flags)
    if given.resume and "run_dir" in values:
        raise DiscorlError("--resume goes on in the folder of its run; leave out --run-dir")
    if given.resume and given.preset:
        raise DiscorlError("--resume goes on with the settings of its run; leave out --preset")
    if given.preset:
        values = presets.preset(given.preset, **values)
    if not given.resume and "env" not in values:
        raise DiscorlError(
            "no environment given; for example `discorl train catch`, and `discorl envs` lists all there are"
        )
    settings.make(values)  # mistakes show before JAX is loaded
    with Interrupts() as interrupts:
        prepare(given)
        from discorl import console, rule_files, runs, trainer

        with console.reporter() as progress:
            watched: dict[str, Any] = {"progress": progress, "stop": interrupts}
            if given.resume:
                result = trainer.resume(given.resume, **values, **watched)
            else:
                rule = values.setdefault("rule", rule_files.default_rule())
                label = Settings(rule=rule).rule_label
                values.setdefault("run_dir", runs.default_folder(values["env"], label))
                result = trainer.train(**values, **watched)
        for line in console.summary_lines(result):
            console.say(line)
    return 128 + interrupts.signal if result.stopped and interrupts.signal else 0


def _discover(given: argparse.Namespace) -> int:
    flags = {n: getattr(given, n) for n in options.names(DiscoverySettings) if getattr(given, n) is not None}
    if given.resume and ("run_dir" in flags or given.preset or given.config):
        raise DiscorlError("--resume goes on with the settings of its run; leave out --run-dir, --preset and --config")
    base = preset(given.preset or "small") if not given.resume else {}
    values = {**base, **(options.read(DiscoverySettings, given.config) if given.config else {}), **flags}
    options.make(DiscoverySettings, values)  # mistakes show before JAX is loaded
    with Interrupts() as interrupts:
        prepare(given)
        from discorl import console
        from discorl.discovery import compiling, discover, placement

        compiling.keep_loops()
        if given.distributed:
            placement.join(given.distributed)
        else:
            placement.use_every_core()
        with console.reporter(console.discovery_line) as progress:
            watched: dict[str, Any] = {"progress": progress, "stop": interrupts}
            if given.resume:
                result = discover.resume(given.resume, **flags, **watched)
            else:
                suite = re.sub(r"[^\w.]+", "-", values.get("suite", DiscoverySettings().suite))
                values.setdefault("run_dir", f"runs/discover-{suite}-{{n}}")
                result = discover.discover(**values, **watched)
        for line in console.discovery_summary(result) if placement.leads() else []:
            console.say(line)
    return 128 + interrupts.signal if result.stopped and interrupts.signal else 0


def _evaluate(given: argparse.Namespace) -> int:
    prepare(given)
    from discorl import console, judging

    result = judging.judge(given.run, episodes=given.episodes, seed=given.seed, env=given.env)
    if given.json:
        print(json.dumps(judging.summary(result), allow_nan=False))
    else:
        print("\n".join(console.evaluation_lines(result)))
    judging.keep(result)  # after it was shown: should the disk be full, nothing is lost
    return 0


def _play(given: argparse.Namespace) -> int:
    prepare(given)
    from discorl import play

    player = play.load(given.run)
    write = play.film_writer(given.out) if given.out else None
    frames = play.play(
        player,
        episodes=given.episodes,
        greedy=given.greedy,
        seed=given.seed,
        which=given.which,
        max_steps=given.max_steps,
        draw=bool(write),
    )
    if write:
        write(list(frames), given.fps)
        print(f"wrote {given.out}")
        return 0
    live = sys.stdout is not None and sys.stdout.isatty() and given.fps > 0
    for frame in frames:
        print(play.caption(frame), frame.picture, "", sep="\n", flush=True)
        if live:
            time.sleep(1 / given.fps)
    return 0


def _rules(given: argparse.Namespace) -> int:
    from discorl.rules import library

    return _table(library.listing())


def _envs(given: argparse.Namespace) -> int:
    from discorl import envs
    from discorl.envs import suites

    _table(envs.listing())
    print("\nsuites, for `discorl discover --suite`:")
    return _table(suites.listing())


def _table(rows: Sequence[tuple[str, ...]]) -> int:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def prepare(given: argparse.Namespace) -> None:
    """Before JAX computes: where compiled programs are kept, and that MODULE:ATTRIBUTE finds what lies here."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    import jax

    if given.no_cache:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if given.cache_dir is None and os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return  # JAX has been told where
    root = os.environ.get("XDG_CACHE_HOME")
    folder = Path(given.cache_dir or (Path(root) if root else Path.home() / ".cache") / "discorl" / "jax")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if given.cache_dir:
            raise DiscorlError(
                f"cannot use the cache {folder}: {error.strerror}; choose another --cache-dir"
            ) from error
        return  # the cache saves time, nothing else
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
