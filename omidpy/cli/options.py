"""Options that verbs share, put where the parser reads them: into the signature of each verb."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

from omidpy.base.words.choices import Choice


def taking(
    verb: Callable[..., None],
    shared: Iterable[inspect.Parameter],
    make: Callable[..., Any],
    *,
    before: str | None = None,
) -> Callable[..., None]:
    """Return a verb that is asked more, and gets what `make` makes of that as its first argument.

    Args:
        verb: Its own options come first; what it asks itself is not asked twice.
        shared: The further ones.
        make: Takes them by name.
        before: Which of its own they are listed in front of; None: behind all.
    """
    # What it gets is no option, and its type may be known to type checkers alone.
    verb.__annotations__.pop(next(iter(inspect.signature(verb).parameters)), None)
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
    asked = {one.name for one in own}
    further = [one for one in shared if one.name not in asked]
    names = [one.name for one in further]
    place = len(own) if before is None else [one.name for one in own].index(before)

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        made = make(**{name: given.pop(name) for name in names})
        verb(made, **given)

    del run.__wrapped__  # whoever asks is to find the options, too
    parameters = [
        one.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for one in (*own[:place], *further, *own[place:])
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # see above
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def parameters_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function that takes options as verbs do."""
    return list(inspect.signature(function, eval_str=True).parameters.values())


def as_parameters(choices: Iterable[Choice]) -> list[inspect.Parameter]:
    """Return choices as a parser of `omidpy` reads them."""
    return [
        inspect.Parameter(
            one.key,
            inspect.Parameter.KEYWORD_ONLY,
            default=None if one.is_many else one.absent,
            annotation=Annotated[
                _form(one),
                typer.Option(
                    f"--{one.name}", metavar=one.metavar, envvar=one.envvar, help=one.help
                ),
            ],
        )
        for one in choices
    ]


def _form(choice: Choice) -> Any:
    if choice.metavar is None:
        return bool
    if choice.is_many:
        return list[str] | None
    return choice.kind if choice.default is not None else choice.kind | None
