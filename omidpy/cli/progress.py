"""How far is it?  A bar on stderr, where somebody may be looking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar, and give what moves it: called with how much is done, and of how much."""
    from rich.console import Console  # noqa: PLC0415 - only where something takes long
    from rich.progress import Progress  # noqa: PLC0415 - see above

    console = Console(file=sys.stderr)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
