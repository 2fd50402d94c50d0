"""What is known of transactions that the conflict map has no word of any more."""
