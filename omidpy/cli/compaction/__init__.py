"""The nightly job, how far tables are healed, and what the commit table remembers."""
