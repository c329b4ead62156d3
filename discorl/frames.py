"""Stacks of frames, stored once per frame.

An Atari agent sees the last four frames; each step brings one new. Stored as they are seen, every frame lies in memory
four times, and the end of one rollout once more as the beginning of the next. Here a frame is stored once, and an
observation is the numbers of its frames. Nothing is assumed about how a stack begins after a reset: frames are
compared, and what is not where it should be is new.
"""

from collections import deque
from functools import lru_cache

import numpy as np

RECENT = 2  # rollouts whose ends the next may begin with: groups of environments take turns
SPARE = 256  # frames beyond one per step, for stacks that begin anew


def room(trajectories: int, steps: int) -> int:
    """How many frames to keep for so many trajectories of so many transitions."""
    return trajectories * (steps + 1) + SPARE


@lru_cache
def _of_kept_frames(size: int, wide: int, step: int) -> np.ndarray:
    """Which of the first `size - step` bytes of a stack, `wide` bytes a pixel, are not of its newest frame."""
    return np.arange(size - step) % wide < wide - step


class FrameStore:
    """A ring of frames, numbered in the order they came (up to 2³¹). It writes into the arrays that it was given."""

    def __init__(self, frames: np.ndarray, count: np.ndarray) -> None:
        """`frames` [room, ..., C]; `count` [] how many there have ever been, the number of the next."""
        self._frames, self._count = frames, count
        self._ends: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=RECENT)

    @property
    def _channels(self) -> int:
        return self._frames.shape[-1]

    @property
    def oldest(self) -> int:
        """The number of the oldest frame that is still there."""
        return max(0, int(self._count) - len(self._frames))

    def forget_ends(self) -> None:
        """What comes next has nothing to do with what came before."""
        self._ends.clear()

    def put(self, stacks: np.ndarray) -> np.ndarray:
        """Numbers [B, T+1, S] of the frames of observations [B, T+1, ..., S·C]."""
        numbers = np.empty((*stacks.shape[:2], stacks.shape[-1] // self._channels), np.int32)
        for lane, trajectory in enumerate(stacks):
            before = self._end_like(lane, trajectory[0])
            for t, stack in enumerate(trajectory):
                numbers[lane, t] = self._numbers(stack, before)
                before = stack, numbers[lane, t]
        self._ends.append((stacks[:, -1].copy(), numbers[:, -1].copy()))
        return numbers

    def put_next(self, at: np.ndarray, after: np.ndarray, stacks: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Numbers [B, N, S] of observations `after` [B, N, ..., S·C] that followed `stacks` at rows `at` [B, N].

        `stacks` and `numbers` are those of `put`. Where `at` is the last row there is none; the numbers are then those
        of the first observation, which is there for as long as the others.
        """
        found = np.repeat(numbers[:, :1], at.shape[1], axis=1)
        for lane, n in np.argwhere(at < stacks.shape[1] - 1):
            row = at[lane, n]
            found[lane, n] = self._numbers(after[lane, n], (stacks[lane, row], numbers[lane, row]))
        return found

    def get(self, numbers: np.ndarray) -> np.ndarray:
        """The observations [..., S·C] of numbers [..., S]."""
        lead, c = self._frames.shape[1:-1], self._channels
        out = np.empty((*numbers.shape[:-1], *lead, numbers.shape[-1] * c), self._frames.dtype)
        for s in range(numbers.shape[-1]):
            out[..., s * c : (s + 1) * c] = self._frames[numbers[..., s] % len(self._frames)]
        return out

    def _end_like(self, lane: int, stack: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        for stacks, numbers in self._ends:
            if lane < len(stacks) and np.array_equal(stacks[lane], stack):
                return stacks[lane], numbers[lane]
        return None

    def _numbers(self, stack: np.ndarray, before: tuple[np.ndarray, np.ndarray] | None) -> np.ndarray:
        c = self._channels
        if before is not None:
            earlier, known = before
            if np.array_equal(stack, earlier):
                return known
            if self._follows(stack, earlier):
                return np.append(known[1:], self._add(stack[..., -c:]))
        frames = np.split(stack, stack.shape[-1] // c, axis=-1)
        numbers = np.empty(len(frames), np.int32)
        for s, frame in enumerate(frames):
            same = s > 0 and np.array_equal(frame, frames[s - 1])
            numbers[s] = numbers[s - 1] if same else self._add(frame)
        return numbers

    def _follows(self, stack: np.ndarray, earlier: np.ndarray) -> bool:
        """Whether `stack` is `earlier` without its oldest frame and with a new one.

        Frames lie side by side within each pixel, so this looks at the bytes in one piece and leaves the new ones out:
        comparing slices of a few bytes each makes storing a rollout take more than twice as long.
        """
        wide, step = stack.shape[-1] * stack.itemsize, self._channels * stack.itemsize
        new, old = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (stack, earlier))
        return not np.any((new[:-step] != old[step:]) & _of_kept_frames(len(new), wide, step))

    def _add(self, frame: np.ndarray) -> int:
        number = int(self._count)
        self._frames[number % len(self._frames)] = frame
        self._count[...] = number + 1
        return number
