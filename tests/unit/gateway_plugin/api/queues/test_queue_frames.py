"""Items as protobuf's ``DataFrame``, byte for byte as protobuf itself writes them."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.api.queues.frames import frame, frames
from gateway_plugin.queues.items import Item


def _classes() -> tuple[Any, Any]:
    """``DataFrame`` and its list as the product's SDK declares them."""
    file = descriptor_pb2.FileDescriptorProto(name="queueservice.proto", package="q", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    one = file.message_type.add(name="DataFrame")
    entry = one.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    one.field.add(name="index", number=1, type=kinds.TYPE_UINT64, label=kinds.LABEL_OPTIONAL)
    one.field.add(
        name="tags",
        number=2,
        type=kinds.TYPE_MESSAGE,
        type_name=".q.DataFrame.TagsEntry",
        label=kinds.LABEL_REPEATED,
    )
    one.field.add(name="data", number=3, type=kinds.TYPE_BYTES, label=kinds.LABEL_OPTIONAL)
    one.field.add(name="message", number=4, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    many = file.message_type.add(name="DataFrameList")
    many.field.add(
        name="index", number=1, type=kinds.TYPE_MESSAGE, type_name=".q.DataFrame", label=kinds.LABEL_REPEATED
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    one_class, many_class = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"q.{name}"))
        for name in ("DataFrame", "DataFrameList")
    )
    return one_class, many_class


DATA_FRAME, DATA_FRAMES = _classes()
ITEMS = st.builds(
    Item,
    index=st.integers(1, 2**63 - 1),
    tags=st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3),
    data=st.binary(max_size=300),
)


@given(ITEMS)
def test_a_frame_is_read_back_by_protobuf(item: Item) -> None:
    read = DATA_FRAME.FromString(frame(item))
    assert (read.index, dict(read.tags), read.data, read.message) == (item.index, dict(item.tags), item.data, "")


@given(st.lists(ITEMS, max_size=3))
def test_a_list_holds_them_in_order(items: list[Item]) -> None:
    read = DATA_FRAMES.FromString(frames(items))
    assert [one.index for one in read.index] == [item.index for item in items]
    assert [one.data for one in read.index] == [item.data for item in items]


def test_no_items_are_no_bytes() -> None:
    assert frames([]) == b""
