from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class HookType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    Unknown: _ClassVar[HookType]
    Pre: _ClassVar[HookType]
    Post: _ClassVar[HookType]
    PostKeyAuth: _ClassVar[HookType]
    CustomKeyCheck: _ClassVar[HookType]
    Response: _ClassVar[HookType]
Unknown: HookType
Pre: HookType
Post: HookType
PostKeyAuth: HookType
CustomKeyCheck: HookType
Response: HookType

class Object(_message.Message):
    __slots__ = ("hook_type", "hook_name", "request", "session", "metadata", "spec", "response")
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SpecEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HOOK_TYPE_FIELD_NUMBER: _ClassVar[int]
    HOOK_NAME_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    hook_type: HookType
    hook_name: str
    request: MiniRequestObject
    session: SessionState
    metadata: _containers.ScalarMap[str, str]
    spec: _containers.ScalarMap[str, str]
    response: ResponseObject
    def __init__(self, hook_type: _Optional[_Union[HookType, str]] = ..., hook_name: _Optional[str] = ..., request: _Optional[_Union[MiniRequestObject, _Mapping]] = ..., session: _Optional[_Union[SessionState, _Mapping]] = ..., metadata: _Optional[_Mapping[str, str]] = ..., spec: _Optional[_Mapping[str, str]] = ..., response: _Optional[_Union[ResponseObject, _Mapping]] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("payload",)
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    payload: str
    def __init__(self, payload: _Optional[str] = ...) -> None: ...

class EventReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StringSlice(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, items: _Optional[_Iterable[str]] = ...) -> None: ...

class MiniRequestObject(_message.Message):
    __slots__ = ("headers", "set_headers", "delete_headers", "body", "url", "params", "add_params", "extended_params", "delete_params", "return_overrides", "method", "request_uri", "scheme", "raw_body")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class SetHeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class AddParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ExtendedParamsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    SET_HEADERS_FIELD_NUMBER: _ClassVar[int]
    DELETE_HEADERS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    PARAMS_FIELD_NUMBER: _ClassVar[int]
    ADD_PARAMS_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_PARAMS_FIELD_NUMBER: _ClassVar[int]
    DELETE_PARAMS_FIELD_NUMBER: _ClassVar[int]
    RETURN_OVERRIDES_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_URI_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    RAW_BODY_FIELD_NUMBER: _ClassVar[int]
    headers: _containers.ScalarMap[str, str]
    set_headers: _containers.ScalarMap[str, str]
    delete_headers: _containers.RepeatedScalarFieldContainer[str]
    body: str
    url: str
    params: _containers.ScalarMap[str, str]
    add_params: _containers.ScalarMap[str, str]
    extended_params: _containers.ScalarMap[str, str]
    delete_params: _containers.RepeatedScalarFieldContainer[str]
    return_overrides: ReturnOverrides
    method: str
    request_uri: str
    scheme: str
    raw_body: bytes
    def __init__(self, headers: _Optional[_Mapping[str, str]] = ..., set_headers: _Optional[_Mapping[str, str]] = ..., delete_headers: _Optional[_Iterable[str]] = ..., body: _Optional[str] = ..., url: _Optional[str] = ..., params: _Optional[_Mapping[str, str]] = ..., add_params: _Optional[_Mapping[str, str]] = ..., extended_params: _Optional[_Mapping[str, str]] = ..., delete_params: _Optional[_Iterable[str]] = ..., return_overrides: _Optional[_Union[ReturnOverrides, _Mapping]] = ..., method: _Optional[str] = ..., request_uri: _Optional[str] = ..., scheme: _Optional[str] = ..., raw_body: _Optional[bytes] = ...) -> None: ...

class ReturnOverrides(_message.Message):
    __slots__ = ("response_code", "response_error", "headers", "override_error", "response_body")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RESPONSE_CODE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_ERROR_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    OVERRIDE_ERROR_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_BODY_FIELD_NUMBER: _ClassVar[int]
    response_code: int
    response_error: str
    headers: _containers.ScalarMap[str, str]
    override_error: bool
    response_body: str
    def __init__(self, response_code: _Optional[int] = ..., response_error: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., override_error: bool = ..., response_body: _Optional[str] = ...) -> None: ...

class ResponseObject(_message.Message):
    __slots__ = ("status_code", "raw_body", "body", "headers", "multivalue_headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    STATUS_CODE_FIELD_NUMBER: _ClassVar[int]
    RAW_BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    MULTIVALUE_HEADERS_FIELD_NUMBER: _ClassVar[int]
    status_code: int
    raw_body: bytes
    body: str
    headers: _containers.ScalarMap[str, str]
    multivalue_headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, status_code: _Optional[int] = ..., raw_body: _Optional[bytes] = ..., body: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., multivalue_headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("key", "values")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    key: str
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, key: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class AccessSpec(_message.Message):
    __slots__ = ("url", "methods")
    URL_FIELD_NUMBER: _ClassVar[int]
    METHODS_FIELD_NUMBER: _ClassVar[int]
    url: str
    methods: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, url: _Optional[str] = ..., methods: _Optional[_Iterable[str]] = ...) -> None: ...

class AccessDefinition(_message.Message):
    __slots__ = ("api_name", "api_id", "versions", "allowed_urls")
    API_NAME_FIELD_NUMBER: _ClassVar[int]
    API_ID_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    ALLOWED_URLS_FIELD_NUMBER: _ClassVar[int]
    api_name: str
    api_id: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    allowed_urls: _containers.RepeatedCompositeFieldContainer[AccessSpec]
    def __init__(self, api_name: _Optional[str] = ..., api_id: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., allowed_urls: _Optional[_Iterable[_Union[AccessSpec, _Mapping]]] = ...) -> None: ...

class BasicAuthData(_message.Message):
    __slots__ = ("password", "hash")
    PASSWORD_FIELD_NUMBER: _ClassVar[int]
    HASH_FIELD_NUMBER: _ClassVar[int]
    password: str
    hash: str
    def __init__(self, password: _Optional[str] = ..., hash: _Optional[str] = ...) -> None: ...

class JWTData(_message.Message):
    __slots__ = ("secret",)
    SECRET_FIELD_NUMBER: _ClassVar[int]
    secret: str
    def __init__(self, secret: _Optional[str] = ...) -> None: ...

class Monitor(_message.Message):
    __slots__ = ("trigger_limits",)
    TRIGGER_LIMITS_FIELD_NUMBER: _ClassVar[int]
    trigger_limits: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, trigger_limits: _Optional[_Iterable[float]] = ...) -> None: ...

class SessionState(_message.Message):
    __slots__ = ("last_check", "allowance", "rate", "per", "expires", "quota_max", "quota_renews", "quota_remaining", "quota_renewal_rate", "access_rights", "org_id", "oauth_client_id", "oauth_keys", "basic_auth_data", "jwt_data", "hmac_enabled", "hmac_secret", "is_inactive", "apply_policy_id", "data_expires", "monitor", "enable_detailed_recording", "metadata", "tags", "alias", "last_updated", "id_extractor_deadline", "session_lifetime", "apply_policies", "certificate", "max_query_depth", "key_id", "post_expiry_action", "post_expiry_grace_period")
    class AccessRightsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: AccessDefinition
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[AccessDefinition, _Mapping]] = ...) -> None: ...
    class OauthKeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MetadataEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    LAST_CHECK_FIELD_NUMBER: _ClassVar[int]
    ALLOWANCE_FIELD_NUMBER: _ClassVar[int]
    RATE_FIELD_NUMBER: _ClassVar[int]
    PER_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_FIELD_NUMBER: _ClassVar[int]
    QUOTA_MAX_FIELD_NUMBER: _ClassVar[int]
    QUOTA_RENEWS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_REMAINING_FIELD_NUMBER: _ClassVar[int]
    QUOTA_RENEWAL_RATE_FIELD_NUMBER: _ClassVar[int]
    ACCESS_RIGHTS_FIELD_NUMBER: _ClassVar[int]
    ORG_ID_FIELD_NUMBER: _ClassVar[int]
    OAUTH_CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OAUTH_KEYS_FIELD_NUMBER: _ClassVar[int]
    BASIC_AUTH_DATA_FIELD_NUMBER: _ClassVar[int]
    JWT_DATA_FIELD_NUMBER: _ClassVar[int]
    HMAC_ENABLED_FIELD_NUMBER: _ClassVar[int]
    HMAC_SECRET_FIELD_NUMBER: _ClassVar[int]
    IS_INACTIVE_FIELD_NUMBER: _ClassVar[int]
    APPLY_POLICY_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_EXPIRES_FIELD_NUMBER: _ClassVar[int]
    MONITOR_FIELD_NUMBER: _ClassVar[int]
    ENABLE_DETAILED_RECORDING_FIELD_NUMBER: _ClassVar[int]
    METADATA_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    ALIAS_FIELD_NUMBER: _ClassVar[int]
    LAST_UPDATED_FIELD_NUMBER: _ClassVar[int]
    ID_EXTRACTOR_DEADLINE_FIELD_NUMBER: _ClassVar[int]
    SESSION_LIFETIME_FIELD_NUMBER: _ClassVar[int]
    APPLY_POLICIES_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    MAX_QUERY_DEPTH_FIELD_NUMBER: _ClassVar[int]
    KEY_ID_FIELD_NUMBER: _ClassVar[int]
    POST_EXPIRY_ACTION_FIELD_NUMBER: _ClassVar[int]
    POST_EXPIRY_GRACE_PERIOD_FIELD_NUMBER: _ClassVar[int]
    last_check: int
    allowance: float
    rate: float
    per: float
    expires: int
    quota_max: int
    quota_renews: int
    quota_remaining: int
    quota_renewal_rate: int
    access_rights: _containers.MessageMap[str, AccessDefinition]
    org_id: str
    oauth_client_id: str
    oauth_keys: _containers.ScalarMap[str, str]
    basic_auth_data: BasicAuthData
    jwt_data: JWTData
    hmac_enabled: bool
    hmac_secret: str
    is_inactive: bool
    apply_policy_id: str
    data_expires: int
    monitor: Monitor
    enable_detailed_recording: bool
    metadata: _containers.ScalarMap[str, str]
    tags: _containers.RepeatedScalarFieldContainer[str]
    alias: str
    last_updated: str
    id_extractor_deadline: int
    session_lifetime: int
    apply_policies: _containers.RepeatedScalarFieldContainer[str]
    certificate: str
    max_query_depth: int
    key_id: str
    post_expiry_action: str
    post_expiry_grace_period: int
    def __init__(self, last_check: _Optional[int] = ..., allowance: _Optional[float] = ..., rate: _Optional[float] = ..., per: _Optional[float] = ..., expires: _Optional[int] = ..., quota_max: _Optional[int] = ..., quota_renews: _Optional[int] = ..., quota_remaining: _Optional[int] = ..., quota_renewal_rate: _Optional[int] = ..., access_rights: _Optional[_Mapping[str, AccessDefinition]] = ..., org_id: _Optional[str] = ..., oauth_client_id: _Optional[str] = ..., oauth_keys: _Optional[_Mapping[str, str]] = ..., basic_auth_data: _Optional[_Union[BasicAuthData, _Mapping]] = ..., jwt_data: _Optional[_Union[JWTData, _Mapping]] = ..., hmac_enabled: bool = ..., hmac_secret: _Optional[str] = ..., is_inactive: bool = ..., apply_policy_id: _Optional[str] = ..., data_expires: _Optional[int] = ..., monitor: _Optional[_Union[Monitor, _Mapping]] = ..., enable_detailed_recording: bool = ..., metadata: _Optional[_Mapping[str, str]] = ..., tags: _Optional[_Iterable[str]] = ..., alias: _Optional[str] = ..., last_updated: _Optional[str] = ..., id_extractor_deadline: _Optional[int] = ..., session_lifetime: _Optional[int] = ..., apply_policies: _Optional[_Iterable[str]] = ..., certificate: _Optional[str] = ..., max_query_depth: _Optional[int] = ..., key_id: _Optional[str] = ..., post_expiry_action: _Optional[str] = ..., post_expiry_grace_period: _Optional[int] = ...) -> None: ...
