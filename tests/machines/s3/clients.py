"""Clients of boto3 that are copied rather than made, since one takes as long as ten requests.

What is made of an endpoint, a region and credentials is the same for all of them.  A copy has its
own hooks, by which a store counts and watches its requests, and shares everything else.
"""

from __future__ import annotations

import copy
import os
from typing import Any, TypeAlias

import pytest

from omidpy.committers.objects import store
from omidpy.committers.objects.client import StoreOptions, new_client

Made: TypeAlias = dict[tuple[StoreOptions, tuple[tuple[str, str], ...]], Any]
"""Clients by what boto3 makes them of: options, and its environment."""


def copy_clients(monkeypatch: pytest.MonkeyPatch, made: Made) -> None:
    """Let stores have copies of clients for the rest of a test."""

    def copied(options: StoreOptions) -> Any:
        environment = tuple(sorted(one for one in os.environ.items() if one[0].startswith("AWS_")))
        key = (options, environment)
        if key not in made:
            made[key] = new_client(options)
        return _copy(made[key])

    monkeypatch.setattr(store, "new_client", copied)


def _copy(client: Any) -> Any:
    copied = object.__new__(type(client))  # it looks for what it lacks among its hooks
    copied.__dict__.update(client.__dict__)
    events = copy.copy(client.meta.events)
    copied.meta = copy.copy(client.meta)
    copied.meta.events = events
    copied._endpoint = copy.copy(client._endpoint)
    copied._endpoint._event_emitter = events
    return copied
