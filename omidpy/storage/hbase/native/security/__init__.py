"""How a client proves who calls, and how what it says is kept from others.

    settings.py     what an address says of it
    layers.py       encryption between a connection and its socket; no I/O
    sasl.py         the bytes by which both agree upon who calls; no I/O
    kerberos.py     the mechanism GSSAPI
    digest.py       the mechanism DIGEST-MD5, by which a token is shown
    tokens.py       tokens, and which one this process was handed

Nothing here opens a connection of its own.
"""
