// The part of HBase's Thrift1 interface (service Hbase) that omidpy calls itself; happybase brings
// the rest.  A test holds this file against the interface that the gateway's own jar carries.

enum TThriftServerType {
  ONE = 1,
  TWO = 2
}

exception IOError {
  1: string message
  2: bool canRetry
}

service Hbase {
  list<binary> getTableNames() throws (1: IOError io)

  TThriftServerType getThriftServerType()
}
