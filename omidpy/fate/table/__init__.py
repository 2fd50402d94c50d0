"""Operations in a table of a store: its rows, and changes that threads share."""
