"""HBase's messages as the protobuf library knows them, to hold the hand-written ones against.

The fields are those of `Client.proto`, `HBase.proto`, `RPC.proto` and others in HBase 2.6.4's jar.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_MESSAGES: Final = {
    "TableName": "1 namespace bytes, 2 qualifier bytes",
    "BytesBytesPair": "1 first bytes, 2 second bytes",
    "NameStringPair": "1 name string, 2 value string",
    "NameBytesPair": "1 name string, 2 value bytes",
    "ColumnFamilySchema": "1 name bytes, 2 attributes *BytesBytesPair, "
    "3 configuration *NameStringPair",
    "TableSchema": "1 table_name TableName, 2 attributes *BytesBytesPair, "
    "3 column_families *ColumnFamilySchema, 4 configuration *NameStringPair",
    "ServerName": "1 host_name string, 2 port uint32, 3 start_code uint64",
    "RegionInfo": "1 region_id uint64, 2 table_name TableName, 3 start_key bytes, 4 end_key bytes, "
    "5 offline bool, 6 split bool, 7 replica_id int32",
    "RegionSpecifier": "1 type int32, 2 value bytes",
    "CoprocessorServiceCall": "1 row bytes, 2 service_name string, 3 method_name string, "
    "4 request bytes",
    "CoprocessorServiceRequest": "1 region RegionSpecifier, 2 call CoprocessorServiceCall",
    "TimeRange": "1 from uint64, 2 to uint64",
    "Column": "1 family bytes, 2 qualifier *bytes",
    "Filter": "1 name string, 2 serialized_filter bytes",
    "Comparator": "1 name string, 2 serialized_comparator bytes",
    "ByteArrayComparable": "1 value bytes",
    "BinaryComparator": "1 comparable ByteArrayComparable",
    "Get": "1 row bytes, 2 column *Column, 4 filter Filter, 5 time_range TimeRange, "
    "6 max_versions uint32, 8 store_limit uint32, 10 existence_only bool",
    "GetRequest": "1 region RegionSpecifier, 2 get Get",
    "Condition": "1 row bytes, 2 family bytes, 3 qualifier bytes, 4 compare_type int32, "
    "5 comparator Comparator",
    "QualifierValue": "1 qualifier bytes, 2 value bytes, 3 timestamp uint64, 4 delete_type int32",
    "ColumnValue": "1 family bytes, 2 qualifier_value *QualifierValue",
    "MutationProto": "1 row bytes, 2 mutate_type int32, 3 column_value *ColumnValue, "
    "6 durability int32, "
    "8 associated_cell_count int32, 9 nonce uint64",
    "MutateRequest": "1 region RegionSpecifier, 2 mutation MutationProto, 3 condition Condition, "
    "4 nonce_group uint64",
    "Action": "1 index uint32, 2 mutation MutationProto, 3 get Get",
    "RegionAction": "1 region RegionSpecifier, 2 atomic bool, 3 action *Action, "
    "4 condition Condition",
    "MultiRequest": "1 regionAction *RegionAction",
    "Cell": "1 row bytes, 2 family bytes, 3 qualifier bytes, 4 timestamp uint64, "
    "5 cell_type int32, 6 value bytes",
    "Result": "1 cell *Cell, 2 associated_cell_count int32, 3 exists bool, 5 partial bool",
    "GetResponse": "1 result Result",
    "MutateResponse": "1 result Result, 2 processed bool",
    "ResultOrException": "1 index uint32, 2 result Result, 3 exception NameBytesPair",
    "RegionActionResult": "1 resultOrException *ResultOrException, 2 exception NameBytesPair, "
    "3 processed bool",
    "MultiResponse": "1 regionActionResult *RegionActionResult",
    "Scan": "1 column *Column, 3 start_row bytes, 4 stop_row bytes, 5 filter Filter, "
    "6 time_range TimeRange, 7 max_versions uint32, 9 batch_size uint32, "
    "10 max_result_size uint64, 15 reversed bool, 21 include_start_row bool, "
    "22 include_stop_row bool, 23 readType int32, "
    "24 need_cursor_result bool",
    "ScanRequest": "1 region RegionSpecifier, 2 scan Scan, 3 scanner_id uint64, "
    "4 number_of_rows uint32, 5 close_scanner bool, 6 next_call_seq uint64, "
    "7 client_handles_partials bool, 8 client_handles_heartbeats bool, 11 limit_of_rows uint32",
    "Cursor": "1 row bytes",
    "ScanResponse": "1 cells_per_result *uint32, 2 scanner_id uint64, 3 more_results bool, "
    "7 partial_flag_per_result *bool, 8 more_results_in_region bool, 9 heartbeat_message bool, "
    "12 cursor Cursor",
    "CellBlockMeta": "1 length uint32",
    "RequestHeader": "1 call_id uint32, 3 method_name string, 4 request_param bool, "
    "5 cell_block_meta CellBlockMeta, 6 priority uint32, 7 timeout uint32",
    "ExceptionResponse": "1 exception_class_name string, 2 stack_trace string, 3 hostname string, "
    "4 port int32, 5 do_not_retry bool",
    "ResponseHeader": "1 call_id uint32, 2 exception ExceptionResponse, "
    "3 cell_block_meta CellBlockMeta",
    "UserInformation": "1 effective_user string, 2 real_user string",
    "ConnectionHeader": "1 user_info UserInformation, 2 service_name string, "
    "3 cell_block_codec_class string",
    "CreateTableRequest": "1 table_schema TableSchema, 2 split_keys *bytes, 3 nonce_group uint64, "
    "4 nonce uint64",
    "ModifyTableRequest": "1 table_name TableName, 2 table_schema TableSchema, "
    "3 nonce_group uint64, 4 nonce uint64",
    "SplitTableRegionRequest": "1 region_info RegionInfo, 2 split_row bytes, 3 nonce_group uint64, "
    "4 nonce uint64",
    "MergeTableRegionsRequest": "1 region *RegionSpecifier, 3 forcible bool, "
    "4 nonce_group uint64, 5 nonce uint64",
    "SetBalancerRunningRequest": "1 on bool, 2 synchronous bool",
    "GetClusterStatusRequest": "1 options *int32",
    "ServerLoad": "1 number_of_requests uint64, 2 total_number_of_requests uint64, "
    "3 used_heap_MB uint32, 4 max_heap_MB uint32, 5 region_loads *Cursor",
    "LiveServerInfo": "1 server ServerName, 2 server_load ServerLoad",
    "ClusterStatus": "2 live_servers *LiveServerInfo, 8 backup_masters *ServerName",
    "GetClusterStatusResponse": "1 cluster_status ClusterStatus",
    "MoveRegionRequest": "1 region RegionSpecifier, 2 dest_server_name ServerName",
    "SnapshotDescription": "1 name string, 2 table string, 3 creation_time int64, 4 type int32, "
    "6 owner string, 8 ttl int64",
    "SnapshotRequest": "1 snapshot SnapshotDescription, 2 nonce_group uint64, 3 nonce uint64",
    "SnapshotResponse": "1 expected_timeout int64, 2 proc_id int64",
    "IsSnapshotDoneRequest": "1 snapshot SnapshotDescription",
    "IsSnapshotDoneResponse": "1 done bool",
    "GetCompletedSnapshotsResponse": "1 snapshots *SnapshotDescription",
    "TruncateTableRequest": "1 tableName TableName, 2 preserveSplits bool, 3 nonce_group uint64, "
    "4 nonce uint64",
}


def message(name: str, **values: Any) -> Any:
    """Return a message of HBase's with some values."""
    return _classes()[f"fake.{name}"](**values)


@cache
def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="fake.proto", package="fake", syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, text in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for part in text.split(", "):
            number, field_name, kind = part.split()
            is_many = kind.startswith("*")
            added = described.field.add(
                name=field_name,
                number=int(number),
                label=kinds.LABEL_REPEATED if is_many else kinds.LABEL_OPTIONAL,
            )
            kind = kind.removeprefix("*")
            if kind[0].isupper():
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".fake.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClassesForFiles(["fake.proto"], pool)
