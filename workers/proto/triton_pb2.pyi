from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TYPE_INVALID: _ClassVar[DataType]
    TYPE_BOOL: _ClassVar[DataType]
    TYPE_UINT8: _ClassVar[DataType]
    TYPE_UINT16: _ClassVar[DataType]
    TYPE_UINT32: _ClassVar[DataType]
    TYPE_UINT64: _ClassVar[DataType]
    TYPE_INT8: _ClassVar[DataType]
    TYPE_INT16: _ClassVar[DataType]
    TYPE_INT32: _ClassVar[DataType]
    TYPE_INT64: _ClassVar[DataType]
    TYPE_FP16: _ClassVar[DataType]
    TYPE_FP32: _ClassVar[DataType]
    TYPE_FP64: _ClassVar[DataType]
    TYPE_STRING: _ClassVar[DataType]
    TYPE_BF16: _ClassVar[DataType]
TYPE_INVALID: DataType
TYPE_BOOL: DataType
TYPE_UINT8: DataType
TYPE_UINT16: DataType
TYPE_UINT32: DataType
TYPE_UINT64: DataType
TYPE_INT8: DataType
TYPE_INT16: DataType
TYPE_INT32: DataType
TYPE_INT64: DataType
TYPE_FP16: DataType
TYPE_FP32: DataType
TYPE_FP64: DataType
TYPE_STRING: DataType
TYPE_BF16: DataType

class Skipped(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Tensor(_message.Message):
    __slots__ = ("name", "data_type", "dims", "reshape")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    RESHAPE_FIELD_NUMBER: _ClassVar[int]
    name: str
    data_type: DataType
    dims: _containers.RepeatedScalarFieldContainer[int]
    reshape: Skipped
    def __init__(self, name: _Optional[str] = ..., data_type: _Optional[_Union[DataType, str]] = ..., dims: _Optional[_Iterable[int]] = ..., reshape: _Optional[_Union[Skipped, _Mapping]] = ...) -> None: ...

class QueuePolicy(_message.Message):
    __slots__ = ("default_timeout_microseconds", "max_queue_size")
    DEFAULT_TIMEOUT_MICROSECONDS_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_SIZE_FIELD_NUMBER: _ClassVar[int]
    default_timeout_microseconds: int
    max_queue_size: int
    def __init__(self, default_timeout_microseconds: _Optional[int] = ..., max_queue_size: _Optional[int] = ...) -> None: ...

class DynamicBatching(_message.Message):
    __slots__ = ("preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering", "priority_levels", "default_priority_level", "default_queue_policy", "priority_queue_policy")
    PREFERRED_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_DELAY_MICROSECONDS_FIELD_NUMBER: _ClassVar[int]
    PRESERVE_ORDERING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_PRIORITY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_QUEUE_POLICY_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_QUEUE_POLICY_FIELD_NUMBER: _ClassVar[int]
    preferred_batch_size: _containers.RepeatedScalarFieldContainer[int]
    max_queue_delay_microseconds: int
    preserve_ordering: bool
    priority_levels: int
    default_priority_level: int
    default_queue_policy: QueuePolicy
    priority_queue_policy: _containers.RepeatedCompositeFieldContainer[Skipped]
    def __init__(self, preferred_batch_size: _Optional[_Iterable[int]] = ..., max_queue_delay_microseconds: _Optional[int] = ..., preserve_ordering: bool = ..., priority_levels: _Optional[int] = ..., default_priority_level: _Optional[int] = ..., default_queue_policy: _Optional[_Union[QueuePolicy, _Mapping]] = ..., priority_queue_policy: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ...) -> None: ...

class VersionPolicy(_message.Message):
    __slots__ = ("latest", "all", "specific")
    class Latest(_message.Message):
        __slots__ = ("num_versions",)
        NUM_VERSIONS_FIELD_NUMBER: _ClassVar[int]
        num_versions: int
        def __init__(self, num_versions: _Optional[int] = ...) -> None: ...
    class Specific(_message.Message):
        __slots__ = ("versions",)
        VERSIONS_FIELD_NUMBER: _ClassVar[int]
        versions: _containers.RepeatedScalarFieldContainer[int]
        def __init__(self, versions: _Optional[_Iterable[int]] = ...) -> None: ...
    LATEST_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    SPECIFIC_FIELD_NUMBER: _ClassVar[int]
    latest: VersionPolicy.Latest
    all: Skipped
    specific: VersionPolicy.Specific
    def __init__(self, latest: _Optional[_Union[VersionPolicy.Latest, _Mapping]] = ..., all: _Optional[_Union[Skipped, _Mapping]] = ..., specific: _Optional[_Union[VersionPolicy.Specific, _Mapping]] = ...) -> None: ...

class Parameter(_message.Message):
    __slots__ = ("string_value",)
    STRING_VALUE_FIELD_NUMBER: _ClassVar[int]
    string_value: str
    def __init__(self, string_value: _Optional[str] = ...) -> None: ...

class WarmUpInput(_message.Message):
    __slots__ = ("data_type", "dims", "zero_data", "random_data", "input_data_file")
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    DIMS_FIELD_NUMBER: _ClassVar[int]
    ZERO_DATA_FIELD_NUMBER: _ClassVar[int]
    RANDOM_DATA_FIELD_NUMBER: _ClassVar[int]
    INPUT_DATA_FILE_FIELD_NUMBER: _ClassVar[int]
    data_type: DataType
    dims: _containers.RepeatedScalarFieldContainer[int]
    zero_data: bool
    random_data: bool
    input_data_file: str
    def __init__(self, data_type: _Optional[_Union[DataType, str]] = ..., dims: _Optional[_Iterable[int]] = ..., zero_data: bool = ..., random_data: bool = ..., input_data_file: _Optional[str] = ...) -> None: ...

class WarmUp(_message.Message):
    __slots__ = ("name", "batch_size", "inputs", "count")
    class InputsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: WarmUpInput
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[WarmUpInput, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    name: str
    batch_size: int
    inputs: _containers.MessageMap[str, WarmUpInput]
    count: int
    def __init__(self, name: _Optional[str] = ..., batch_size: _Optional[int] = ..., inputs: _Optional[_Mapping[str, WarmUpInput]] = ..., count: _Optional[int] = ...) -> None: ...

class ModelConfig(_message.Message):
    __slots__ = ("name", "platform", "backend", "max_batch_size", "input", "output", "dynamic_batching", "version_policy", "parameters", "model_warmup", "default_model_filename", "ensemble_scheduling", "sequence_batching", "instance_group", "optimization", "batch_input", "batch_output", "cc_model_filenames", "metric_tags", "model_operations", "model_transaction_policy", "model_repository_agents", "response_cache", "model_metrics", "runtime")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: Parameter
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[Parameter, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    PLATFORM_FIELD_NUMBER: _ClassVar[int]
    BACKEND_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    DYNAMIC_BATCHING_FIELD_NUMBER: _ClassVar[int]
    VERSION_POLICY_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    MODEL_WARMUP_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_MODEL_FILENAME_FIELD_NUMBER: _ClassVar[int]
    ENSEMBLE_SCHEDULING_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_BATCHING_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_GROUP_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_INPUT_FIELD_NUMBER: _ClassVar[int]
    BATCH_OUTPUT_FIELD_NUMBER: _ClassVar[int]
    CC_MODEL_FILENAMES_FIELD_NUMBER: _ClassVar[int]
    METRIC_TAGS_FIELD_NUMBER: _ClassVar[int]
    MODEL_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    MODEL_TRANSACTION_POLICY_FIELD_NUMBER: _ClassVar[int]
    MODEL_REPOSITORY_AGENTS_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_CACHE_FIELD_NUMBER: _ClassVar[int]
    MODEL_METRICS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: _containers.RepeatedCompositeFieldContainer[Tensor]
    output: _containers.RepeatedCompositeFieldContainer[Tensor]
    dynamic_batching: DynamicBatching
    version_policy: VersionPolicy
    parameters: _containers.MessageMap[str, Parameter]
    model_warmup: _containers.RepeatedCompositeFieldContainer[WarmUp]
    default_model_filename: str
    ensemble_scheduling: Skipped
    sequence_batching: Skipped
    instance_group: _containers.RepeatedCompositeFieldContainer[Skipped]
    optimization: Skipped
    batch_input: _containers.RepeatedCompositeFieldContainer[Skipped]
    batch_output: _containers.RepeatedCompositeFieldContainer[Skipped]
    cc_model_filenames: _containers.RepeatedCompositeFieldContainer[Skipped]
    metric_tags: _containers.RepeatedCompositeFieldContainer[Skipped]
    model_operations: Skipped
    model_transaction_policy: Skipped
    model_repository_agents: Skipped
    response_cache: Skipped
    model_metrics: Skipped
    runtime: str
    def __init__(self, name: _Optional[str] = ..., platform: _Optional[str] = ..., backend: _Optional[str] = ..., max_batch_size: _Optional[int] = ..., input: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., output: _Optional[_Iterable[_Union[Tensor, _Mapping]]] = ..., dynamic_batching: _Optional[_Union[DynamicBatching, _Mapping]] = ..., version_policy: _Optional[_Union[VersionPolicy, _Mapping]] = ..., parameters: _Optional[_Mapping[str, Parameter]] = ..., model_warmup: _Optional[_Iterable[_Union[WarmUp, _Mapping]]] = ..., default_model_filename: _Optional[str] = ..., ensemble_scheduling: _Optional[_Union[Skipped, _Mapping]] = ..., sequence_batching: _Optional[_Union[Skipped, _Mapping]] = ..., instance_group: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., optimization: _Optional[_Union[Skipped, _Mapping]] = ..., batch_input: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., batch_output: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., cc_model_filenames: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., metric_tags: _Optional[_Iterable[_Union[Skipped, _Mapping]]] = ..., model_operations: _Optional[_Union[Skipped, _Mapping]] = ..., model_transaction_policy: _Optional[_Union[Skipped, _Mapping]] = ..., model_repository_agents: _Optional[_Union[Skipped, _Mapping]] = ..., response_cache: _Optional[_Union[Skipped, _Mapping]] = ..., model_metrics: _Optional[_Union[Skipped, _Mapping]] = ..., runtime: _Optional[str] = ...) -> None: ...
