"""One run: its steps in order, what is kept between them, and its lease."""
