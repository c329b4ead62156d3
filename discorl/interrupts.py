"""Ending in good order when somebody asks for it."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """Ctrl-C or SIGTERM asks for an orderly end; asking twice ends at once."""

    def __init__(self) -> None:
        self.signal = 0
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self.signal != 0

    def __enter__(self) -> "Interrupts":
        self._before = {number: signal.signal(number, self._arrived) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _arrived(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = number
        # os.write: a handler may run in the middle of a print
        os.write(2, b"\nstopping after this stretch of updates, saving; once more to stop at once\n")
