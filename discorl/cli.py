"""The command line: parses, calls the library, prints. JAX is imported only by commands that compute."""

import argparse
import io
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, NoReturn

from discorl import settings
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
        options = parse(arguments)
        return options.command(options)
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
            ("play", "show episodes of a trained agent"),
            ("rules", "list update rules"),
            ("envs", "list environments"),
        )
    }
    _add_train(parsers["train"])
    _add_play(parsers["play"])
    parsers["rules"].set_defaults(command=_rules)
    parsers["envs"].set_defaults(command=_envs)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        chosen = next(p for p in parsers.values() if p.get_default("command") is options.command)
        raise DiscorlError(f"unknown argument {unknown[0]!r}; {near_matches(unknown[0], chosen.flags())}")
    return options


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.usage = "discorl train ENV [options]"
    parser.set_defaults(command=_train)
    parser.add_argument("env", nargs="?", metavar="ENV", help=_help("env"))
    groups: dict[str, Any] = {}
    for field in fields(Settings):
        if field.name == "env":
            continue
        title = field.metadata["group"]
        groups.setdefault(title, parser.add_argument_group(title))
        kind = settings.kind(field.name)
        groups[title].add_argument(
            "--" + field.name.replace("_", "-"),
            type=settings.widths if kind is tuple else kind,
            metavar="DIR" if field.name == "run_dir" else {int: "N", float: "X", str: "NAME", tuple: "N,N"}[kind],
            help=_help(field.name),
        )
    files = groups["run"]
    files.add_argument("--config", metavar="FILE", help="settings in a TOML file; flags override them")
    files.add_argument("--resume", metavar="RUN", help="go on with a run folder exactly where it stopped")
    _add_cache(files)


def _add_play(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(command=_play)
    parser.add_argument("run", metavar="RUN", help="folder that `discorl train` made")
    parser.add_argument("--episodes", type=int, default=3, metavar="N", help="how many (default: 3)")
    parser.add_argument("--greedy", action="store_true", help="take the likeliest action instead of drawing one")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the episodes (default: 0)")
    parser.add_argument("--which", type=int, default=0, metavar="N", help="agent of a run with --seeds (default: 0)")
    parser.add_argument("--max-steps", type=int, default=1000, metavar="N", help="per episode (default: 1000)")
    parser.add_argument("--gif", metavar="FILE", help="write an animated picture instead of text")
    parser.add_argument("--fps", type=float, default=6.0, metavar="X", help="frames per second (default: 6)")
    _add_cache(parser)


def _add_cache(parser: Any) -> None:
    place = "$XDG_CACHE_HOME/discorl/jax or ~/.cache/discorl/jax"
    parser.add_argument("--cache-dir", metavar="DIR", help=f"where compiled programs are kept (default: {place})")
    parser.add_argument("--no-cache", action="store_true", help="keep no compiled programs")


def _help(name: str) -> str:
    field = next(f for f in fields(Settings) if f.name == name)
    text, default = field.metadata["help"], settings.DEFAULTS.get(name, field.default)
    if name == "rule":
        default = "the bundled rule, else disco103"
    if default is None or name == "env":
        return text
    shown = [_shown(default)]
    shown += [f"{rule}: {_shown(own[name])}" for rule, own in settings.RULE_DEFAULTS.items() if name in own]
    return f"{text} (default: {'; '.join(shown)})".replace("%", "%%")


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("discorl")
    except metadata.PackageNotFoundError:
        return "(not installed)"


# Commands -------------------------------------------------------------------------------------------------------------


def _train(options: argparse.Namespace) -> int:
    flags = {name: getattr(options, name) for name in settings.NAMES}
    values = settings.merge(settings.read(options.config) if options.config else {}, flags)
    if options.resume and "run_dir" in values:
        raise DiscorlError("--resume goes on in the folder of its run; leave out --run-dir")
    if not options.resume and "env" not in values:
        raise DiscorlError(
            "no environment given; for example `discorl train catch`, and `discorl envs` lists all there are"
        )
    settings.make(values)  # mistakes show before JAX is loaded
    with Interrupts() as interrupts:
        prepare(options)
        from discorl import console, rule_files, runs, trainer

        with console.reporter() as progress:
            watched: dict[str, Any] = {"progress": progress, "stop": interrupts}
            if options.resume:
                result = trainer.resume(options.resume, **values, **watched)
            else:
                rule = values.setdefault("rule", rule_files.default_rule())
                label = Settings(rule=rule).rule_label
                values.setdefault("run_dir", runs.default_folder(values["env"], label))
                result = trainer.train(**values, **watched)
        for line in console.summary_lines(result):
            console.say(line)
    return 128 + interrupts.signal if result.stopped and interrupts.signal else 0


def _play(options: argparse.Namespace) -> int:
    prepare(options)
    from discorl import play

    player = play.load(options.run)
    frames = play.play(
        player,
        episodes=options.episodes,
        greedy=options.greedy,
        seed=options.seed,
        which=options.which,
        max_steps=options.max_steps,
        draw=bool(options.gif),
    )
    if options.gif:
        play.write_gif(options.gif, list(frames), options.fps)
        print(f"wrote {options.gif}")
        return 0
    live = sys.stdout is not None and sys.stdout.isatty() and options.fps > 0
    for frame in frames:
        print(play.caption(frame), frame.picture, "", sep="\n", flush=True)
        if live:
            time.sleep(1 / options.fps)
    return 0


def _rules(options: argparse.Namespace) -> int:
    from discorl.rules import library

    return _table(library.listing())


def _envs(options: argparse.Namespace) -> int:
    from discorl import envs

    return _table(envs.listing())


def _table(rows: Sequence[tuple[str, ...]]) -> int:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def prepare(options: argparse.Namespace) -> None:
    """Before JAX computes: where compiled programs are kept, and that MODULE:ATTRIBUTE finds what lies here."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    import jax

    if options.no_cache:
        jax.config.update("jax_enable_compilation_cache", False)
        return
    if options.cache_dir is None and os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return  # JAX has been told where
    root = os.environ.get("XDG_CACHE_HOME")
    folder = Path(options.cache_dir or (Path(root) if root else Path.home() / ".cache") / "discorl" / "jax")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        if options.cache_dir:
            raise DiscorlError(
                f"cannot use the cache {folder}: {error.strerror}; choose another --cache-dir"
            ) from error
        return  # the cache saves time, nothing else
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
