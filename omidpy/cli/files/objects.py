"""What verbs that speak to an object store share: how it is reached, as options of each of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

import typer

from omidpy.cli.common import UnaskedTso
from omidpy.committers.objects.client import StoreOptions
from omidpy.committers.objects.store import ObjectStore

Path: TypeAlias = Annotated[str, typer.Argument(metavar="PATH", help="s3://BUCKET/FOLDER")]
Endpoint: TypeAlias = Annotated[
    str | None, typer.Option(metavar="URL", help="Of the store, where it is not Amazon's.")
]
Region: TypeAlias = Annotated[str | None, typer.Option(help="Of the bucket.")]
Profile: TypeAlias = Annotated[str | None, typer.Option(help="Of the files of ~/.aws.")]
PathStyle: TypeAlias = Annotated[
    bool | None,
    typer.Option(help="Name the bucket in the path. Default: where an endpoint is given."),
]
UnaskedStore: TypeAlias = Annotated[
    str | None, typer.Option("--store", envvar="OMIDPY_STORE", metavar="URL", hidden=True)
]
"""Taken by verbs that need no store of cells, as scripts give every verb the same words."""


def with_objects(verb: Callable[..., None]) -> Callable[..., None]:
    """Open the object store that the options name, and hand it to a verb as its first argument.

    The command's parser reads options from the signature: the verb's own, and behind them these.
    """
    own = list(inspect.signature(verb, eval_str=True).parameters.values())[1:]
    asked = {one.name for one in own}
    shared = [
        one
        for one in inspect.signature(_opened, eval_str=True).parameters.values()
        if one.name not in asked
    ]
    names = {one.name for one in shared}

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        objects = _opened(**{name: given.pop(name) for name in names})
        verb(objects, **given)

    del run.__wrapped__  # whoever asks is to find the options, too
    parameters = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in (*own, *shared)]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # see above
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _opened(
    *,
    endpoint_url: Endpoint = None,
    region: Region = None,
    profile: Profile = None,
    path_style: PathStyle = None,
    store: UnaskedStore = None,
    tso: UnaskedTso = None,
) -> ObjectStore:
    del store, tso
    return ObjectStore(StoreOptions(endpoint_url, region, profile, path_style))
