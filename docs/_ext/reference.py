"""Markdown for the reference, from parsers and classes: nobody has to keep it in step by hand.

Each public function returns the text of a part of a page.  Nothing here knows Sphinx.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from omidpy import errors


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


# -- commands --------------------------------------------------------------------------------------


def cli() -> str:
    """Describe every verb of the `omidpy` command."""
    import typer.main  # noqa: PLC0415 - only where the page is built

    from omidpy.cli.app import tree  # noqa: PLC0415 - see above

    parts = []
    for words, command in _verbs(typer.main.get_command(tree()), ["omidpy"]):
        arguments = [
            option.metavar or str(option.name).upper()
            for option in command.params
            if option.param_type_name == "argument"
        ]
        options = [
            option
            for option in command.params
            if option.param_type_name == "option" and not option.hidden
        ]
        parts += [
            f"## `{' '.join([*words, *arguments])}`",
            inspect.cleandoc(command.help or ""),
            table(
                ("option", "meaning"),
                [(_option_name(option), _option_help(option)) for option in options],
            ),
        ]
    return "\n\n".join(parts)


def _verbs(command: Any, words: list[str]) -> Iterator[tuple[list[str], Any]]:
    if not hasattr(command, "commands"):
        yield words, command
        return
    for name, child in command.commands.items():
        yield from _verbs(child, [*words, name])


def _option_name(option: Any) -> str:
    name = ", ".join(option.opts)
    return f"`{name}`" if option.is_flag else f"`{name} {option.metavar or 'TEXT'}`"


def _option_help(option: Any) -> str:
    text = str(option.help or "")
    if option.envvar:
        text += f" Or `{option.envvar}`."
    if option.default is not None and not option.is_flag and not callable(option.default):
        text += f" Default: `{option.default}`."
    return text.strip()


def spark_job() -> str:
    """Describe the arguments of the Spark job."""
    from compactor.shell.job import parser  # noqa: PLC0415 - only where the page is built

    return _arguments(parser())


def tso_server() -> str:
    """Describe the settings of `tso-server`, each by its three names."""
    from tso.choices import CONFIG, ORACLE  # noqa: PLC0415 - only where the page is built

    rows = [
        (
            f"`--{one.name}`" if one.metavar is None else f"`--{one.name} {one.metavar}`",
            f"`{one.envvar}`" if one.envvar else "",
            f"`{one.name}`" if one.envvar and one is not CONFIG else "",
            _sentence(one.help),
        )
        for one in ORACLE
    ]
    return table(("flag", "variable", "key of the file", "meaning"), rows)


def _arguments(parser: argparse.ArgumentParser) -> str:
    rows = [(_flag(action), _sentence(action.help, action)) for action in _actions(parser)]
    return table(("option", "meaning"), rows)


def _actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [
        action
        for action in parser._actions  # noqa: SLF001 - argparse offers no other way
        if "--help" not in action.option_strings and action.help != argparse.SUPPRESS
    ]


def _flag(action: argparse.Action) -> str:
    name = action.option_strings[0]
    return f"`{name}`" if action.nargs == 0 else f"`{name} {action.metavar}`"


def _sentence(text: str | None, action: argparse.Action | None = None) -> str:
    text = text or ""
    if action is not None:
        text = text % {"default": action.default}
    return text[:1].upper() + text[1:] + "."


# -- errors ----------------------------------------------------------------------------------------


def error_classes() -> str:
    """List every error with what it means and whether it may be retried."""
    found = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.OmidError)
    ]
    rows = [
        (
            f"`{error.__name__}`",
            f"`{error.__bases__[0].__name__}`" if error is not errors.OmidError else "",
            "yes" if error.retryable else "no",
            (inspect.getdoc(error) or "").partition("\n\n")[0].replace("\n", " "),
        )
        for error in found
    ]
    return table(("error", "is a", "retryable unless it says otherwise", "meaning"), rows)
