// The part of HBase's Thrift1 interface (service Hbase) that omidpy calls.  A test holds this file
// against the interface that the gateway's own jar carries.

enum TThriftServerType {
  ONE = 1,
  TWO = 2
}

exception IOError {
  1: string message
  2: bool canRetry
}

exception IllegalArgument {
  1: string message
}

exception AlreadyExists {
  1: string message
}

struct TCell {
  1: binary value
  2: i64 timestamp
}

struct TColumn {
  1: binary columnName
  2: TCell cell
}

struct TRowResult {
  1: binary row
  2: optional map<binary, TCell> columns
  3: optional list<TColumn> sortedColumns
}

struct ColumnDescriptor {
  1: binary name
  2: i32 maxVersions = 3
  3: string compression = "NONE"
  4: bool inMemory = 0
  5: string bloomFilterType = "NONE"
  6: i32 bloomFilterVectorSize = 0
  7: i32 bloomFilterNbHashes = 0
  8: bool blockCacheEnabled = 0
  9: i32 timeToLive = 2147483647
}

struct TRegionInfo {
  1: binary startKey
  2: binary endKey
  3: i64 id
  4: binary name
  5: byte version
  6: binary serverName
  7: i32 port
}

struct Mutation {
  1: bool isDelete = 0
  2: binary column
  3: binary value
  4: bool writeToWAL = 1
}

struct BatchMutation {
  1: binary row
  2: list<Mutation> mutations
}

struct TScan {
  1: optional binary startRow
  2: optional binary stopRow
  3: optional i64 timestamp
  4: optional list<binary> columns
  5: optional i32 caching
  6: optional binary filterString
  7: optional i32 batchSize
  8: optional bool sortColumns
  9: optional bool reversed
  10: optional bool cacheBlocks
}

service Hbase {
  list<binary> getTableNames() throws (1: IOError io)

  bool isTableEnabled(1: binary tableName) throws (1: IOError io)

  void disableTable(1: binary tableName) throws (1: IOError io)

  void deleteTable(1: binary tableName) throws (1: IOError io)

  void createTable(
    1: binary tableName,
    2: list<ColumnDescriptor> columnFamilies
  ) throws (1: IOError io, 2: IllegalArgument ia, 3: AlreadyExists exist)

  map<binary, ColumnDescriptor> getColumnDescriptors(1: binary tableName) throws (1: IOError io)

  list<TRegionInfo> getTableRegions(1: binary tableName) throws (1: IOError io)

  list<TCell> getVerTs(
    1: binary tableName,
    2: binary row,
    3: binary column,
    4: i64 timestamp,
    5: i32 numVersions,
    6: map<binary, binary> attributes
  ) throws (1: IOError io)

  list<TRowResult> getRowsTs(
    1: binary tableName,
    2: list<binary> rows,
    3: i64 timestamp,
    4: map<binary, binary> attributes
  ) throws (1: IOError io)

  list<TRowResult> getRowsWithColumnsTs(
    1: binary tableName,
    2: list<binary> rows,
    3: list<binary> columns,
    4: i64 timestamp,
    5: map<binary, binary> attributes
  ) throws (1: IOError io)

  i32 scannerOpenWithScan(
    1: binary tableName,
    2: TScan scan,
    3: map<binary, binary> attributes
  ) throws (1: IOError io)

  list<TRowResult> scannerGetList(
    1: i32 id,
    2: i32 nbRows
  ) throws (1: IOError io, 2: IllegalArgument ia)

  void scannerClose(1: i32 id) throws (1: IOError io, 2: IllegalArgument ia)

  void mutateRowsTs(
    1: binary tableName,
    2: list<BatchMutation> rowBatches,
    3: i64 timestamp,
    4: map<binary, binary> attributes
  ) throws (1: IOError io, 2: IllegalArgument ia)

  void deleteAllTs(
    1: binary tableName,
    2: binary row,
    3: binary column,
    4: i64 timestamp,
    5: map<binary, binary> attributes
  ) throws (1: IOError io)

  bool checkAndPut(
    1: binary tableName,
    2: binary row,
    3: binary column,
    5: binary value,
    6: Mutation mput,
    7: map<binary, binary> attributes
  ) throws (1: IOError io, 2: IllegalArgument ia)

  TThriftServerType getThriftServerType()

  string getClusterId()
}
