"""Operations kept in ZooKeeper."""
