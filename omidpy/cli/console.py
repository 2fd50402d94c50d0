"""`omidpy console`: the state of a store, its oracle, queues and jobs on a screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from omidpy.base.installation import install_hint
from omidpy.base.telemetry.events import TEXT, check_format, configure
from omidpy.cli.common import LogFormat, Metrics, StoreUrl, TsoAddress
from omidpy.errors import ConfigError

if TYPE_CHECKING:
    from tso.serving.tls import TlsSettings

DEFAULT_LISTEN = "127.0.0.1:8080"


def console(
    *,
    store: StoreUrl,
    tso: TsoAddress = None,
    metrics: Metrics = None,
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where; port 0 picks one that is free."),
    ] = DEFAULT_LISTEN,
    folder: Annotated[
        list[str] | None,
        typer.Option(metavar="s3://BUCKET/FOLDER", help="Show the jobs there; again for more."),
    ] = None,
    endpoint_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Of the store of these folders.")
    ] = None,
    allow_operations: Annotated[
        bool,
        typer.Option(
            "--allow-operations",
            help="Let those change something who show a token or a certificate.",
        ),
    ] = False,
    token_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Lines NAME TOKEN: who may, by what.")
    ] = None,
    journal: Annotated[
        str | None, typer.Option(metavar="FILE", help="Where it is noted who did what.")
    ] = None,
    tls_cert: Annotated[
        str | None, typer.Option(metavar="FILE", help="Speak TLS with this certificate.")
    ] = None,
    tls_key: Annotated[
        str | None, typer.Option(metavar="FILE", help="Its key, unless the same file has it.")
    ] = None,
    tls_client_ca: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Who signs the certificates that clients must show."),
    ] = None,
    tls_crl: Annotated[
        str | None, typer.Option(metavar="FILE", help="Which of those were revoked.")
    ] = None,
    tls_roles: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="As of `tso-server`: who has the role admin may change something; without it, "
            "everybody with a certificate.",
        ),
    ] = None,
    insecure: Annotated[
        bool,
        typer.Option("--insecure", help="Without TLS on an address that other machines reach."),
    ] = False,
    log_format: LogFormat = TEXT,
) -> None:
    """Show a store, its oracle, operations, queues and jobs in a browser.

    Nothing can be changed there without --allow-operations.
    """
    configure(check_format(log_format))
    try:
        from omidpy.console.serving import serve  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise ConfigError(
            f"{error.name} is not installed; run `{install_hint('console')}`"
        ) from error
    from omidpy.console.settings import settings_from_words  # noqa: PLC0415 - see above
    from omidpy.console.sources import Sources  # noqa: PLC0415 - see above

    files = {
        "tls-cert": tls_cert,
        "tls-key": tls_key,
        "tls-client-ca": tls_client_ca,
        "tls-crl": tls_crl,
        "tls-roles": tls_roles,
    }
    settings = settings_from_words(
        store=store,
        tso=tso,
        listen=listen,
        metrics=metrics or (),
        folders=folder or (),
        allow_operations=allow_operations,
        token_file=token_file,
        journal=journal,
        tls=_tls(files),
        insecure=insecure,
    )

    def open_objects() -> Any:
        from omidpy.committers.objects.client import StoreOptions  # noqa: PLC0415 - of an extra
        from omidpy.committers.objects.store import ObjectStore  # noqa: PLC0415 - the same

        return ObjectStore(StoreOptions(endpoint_url))

    sources = Sources(settings.addresses, open_objects=open_objects)
    serve(settings, sources, log_format=log_format)


def _tls(files: dict[str, str | None]) -> TlsSettings | None:
    from tso.config import check_tls  # noqa: PLC0415 - application
    from tso.serving.tls import TlsSettings  # noqa: PLC0415 - application

    check_tls(files)
    if files["tls-cert"] is None:
        return None
    return TlsSettings(
        files["tls-cert"],
        files["tls-key"],
        files["tls-client-ca"],
        files["tls-crl"],
        files["tls-roles"],
    )
