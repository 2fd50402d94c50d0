"""Each backend against the one contract of stores."""
