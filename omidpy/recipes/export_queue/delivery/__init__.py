"""Who delivers: buckets shared out, one bucket after the other, and what follows a failure."""
