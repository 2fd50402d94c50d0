"""What verbs that speak to an object store share: how it is reached, as options of each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeAlias

import typer

from omidpy.cli.common import UnaskedTso
from omidpy.cli.options import parameters_of, taking
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
    """Open the object store that the options name, and hand it to a verb as its first argument."""
    return taking(verb, parameters_of(_opened), _opened)


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
