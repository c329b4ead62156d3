"""Importing what may not be installed."""

import importlib
from types import ModuleType

from discorl.errors import DiscorlError


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
