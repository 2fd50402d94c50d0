"""Pure code and single parts: no servers, milliseconds."""
