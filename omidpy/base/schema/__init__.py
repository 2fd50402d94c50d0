"""What a table says of itself: the attributes that we set, families' options, and Phoenix's."""
