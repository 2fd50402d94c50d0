"""`omidpy console`: a store, its oracle, queues and jobs on one screen, as pages without script.

What is shown are the values of `omidpy.reports`, which the command line prints with `--json`.  A
page has parts, and each is asked for by itself: one that fails, or takes long, hides no other.
Nothing is changed unless that was allowed, and then by whoever has said who he is.

    settings  which addresses, whose tokens            pure but for reading files
    drawing   numbers as SVG                           pure
    sources   what is asked, opened when it first is
    parts     parts of pages, each within its time
    pages     which parts a page has
    people    who may change something                 tokens, certificates, forms of ours alone
    deeds     what may be changed, and the journal of who did it
    app       requests and answers
    serving   the listening socket, and TLS
"""
