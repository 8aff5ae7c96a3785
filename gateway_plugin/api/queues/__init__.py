"""The queue service's dialect: put, get, watch, commit and what else its SDKs send, over HTTP and websockets."""
