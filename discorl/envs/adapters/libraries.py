"""Importing what may not be installed."""

import importlib
from types import ModuleType

from discorl.errors import DiscorlError

OWN_MODULES_NEED = {"gymnasium": "gym", "dm_env": "dm-env"}  # libraries to write environments with, and their extras


def library(module: str, extra: str, wanted: str) -> ModuleType:
    """The module, or how to get it; `wanted` names the environment that needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        root = module.partition(".")[0]
        missing = f"{root} is not installed" if getattr(error, "name", None) == root else f"importing it says: {error}"
        raise DiscorlError(
            f"{wanted} needs the library {root}, but {missing}; install it with: pip install 'discorl[{extra}]'"
        ) from error


def how_to_install(error: Exception) -> str:
    """The end of a sentence about a module of somebody's that misses a library; empty if nothing is known."""
    extra = OWN_MODULES_NEED.get(getattr(error, "name", None) or "")
    return f"; install it with: pip install 'discorl[{extra}]'" if extra else ""
