"""What travels between a client and the timestamp oracle, byte exact with Apache Omid."""
