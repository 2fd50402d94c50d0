"""Calls of a gateway: connections, who is asked again, and what an error means.

Without the extra `hbase` its import says what to install.
"""

import omidpy.storage.hbase.idl  # noqa: F401 - before anything that needs thriftpy2 itself
