"""How does boto3 reach a store?  Its client, made of options, its own chain and the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from omidpy.base.installation import install_hint
from omidpy.errors import ConfigError


def missing_extra() -> str:
    """Say what publishing to S3 lacks, and how it is installed."""
    return f"publishing to S3 needs boto3, which is not installed; run `{install_hint('s3')}`"


_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_AMAZONS: Final = (".amazonaws.com", ".amazonaws.com.cn")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is reached; what is None, boto3 finds out."""

    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    path_style: bool | None = None
    """None: where an endpoint is named, since few have a name for each bucket."""
    threads: int = 32
    """Requests at the same time, and connections that are kept."""


def endpoint_of(options: StoreOptions) -> str | None:
    """Return the endpoint that is named, by options or as boto3 takes it from its environment."""
    named = (options.endpoint_url, *map(os.environ.get, _ENDPOINTS))
    return next(filter(None, named), None)


def is_amazons(client: Any) -> bool:
    """Say whether a client asks Amazon's own store, wherever it is named: a profile may, too."""
    return (urlsplit(client.meta.endpoint_url).hostname or "").endswith(_AMAZONS)


@cache
def _descriptions() -> Any:
    """Return what reads boto3's descriptions of services, which takes longer than the rest."""
    import botocore.loaders  # noqa: PLC0415 - an extra

    return botocore.loaders.create_loader()


def new_client(options: StoreOptions) -> Any:
    """Return a client of boto3; nothing is sent.

    Raises:
        ConfigError: boto3 is not installed, or refuses the options.
    """
    try:
        import boto3  # noqa: PLC0415 - an extra
        import botocore.session  # noqa: PLC0415 - see above
        from botocore.config import Config  # noqa: PLC0415 - see above
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - see above
    except ImportError as error:
        raise ConfigError(missing_extra()) from error
    path_style = options.path_style
    if path_style is None:
        path_style = endpoint_of(options) is not None
    try:
        core = botocore.session.get_session()
        core.register_component("data_loader", _descriptions())
        session = boto3.session.Session(
            botocore_session=core, profile_name=options.profile, region_name=options.region
        )
        region = session.region_name or ("us-east-1" if options.endpoint_url else None)
        return session.client(
            "s3",
            endpoint_url=options.endpoint_url,
            region_name=region,
            config=Config(
                max_pool_connections=options.threads,
                retries={"mode": "standard", "total_max_attempts": 4},
                s3={"addressing_style": "path" if path_style else "auto"},
                # Newer checksums than a store knows make it refuse what it could have taken.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
            ),
        )
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"no client for S3 could be made: {error}") from error
