"""A SavedModel's graph in a session of its own: loaded, fed and fetched as TensorFlow Serving does.

Tensors are named as the graph names them, so what a signature calls its inputs is nobody's concern here, and what is
loaded is the graph alone, not the objects and functions of Python that it was made of. The steps and their order are
those of TensorFlow's ``cc/saved_model/loader.cc``; the loader of TensorFlow 1 for Python takes them too, and beside
them makes Python's objects of all collections in a graph, which no request needs and some graphs do not allow.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import graph_pb2
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.framework import ops

INITIALIZER: Final = "__saved_model_init_op"
_INITIALIZERS: Final = ("saved_model_main_op", "legacy_init_op")
_ASSETS: Final = "saved_model_assets"
Run = Callable[..., list[Any]]
"""Takes arrays in the order of what is fed; numpy's arrays, or scalars, in the order of what is fetched."""


def settings(kind: str, intra_threads: int, inter_threads: int) -> Any:
    """The ConfigProto of every session of a process: the first one's settings of the device are those of all.

    Each has its own threads between operations where their number is set, so that no run waits while another version
    loads. Devices are chosen softly, as TensorFlow 2 does: a node for a GPU runs on the CPU where there is none.
    """
    return config_pb2.ConfigProto(
        allow_soft_placement=True,
        device_count={"GPU": 0} if kind == "cpu" else {},
        gpu_options=config_pb2.GPUOptions(allow_growth=True),
        intra_op_parallelism_threads=intra_threads,
        inter_op_parallelism_threads=inter_threads,
        use_per_session_threads=inter_threads > 0,
    )


class GraphSession:
    """One version, restored and initialized. What it holds is freed when it is closed and nothing refers to it: nothing
    is left for Python's collector.
    """

    def __init__(self, meta_graph: memoryview, directory: Path, config: Any) -> None:
        """meta_graph: the MetaGraphDef to load, of the SavedModel in ``directory``. Raises what TensorFlow raises."""
        meta = meta_graph_pb2.MetaGraphDef.FromString(bytes(meta_graph))
        known = meta.meta_info_def.stripped_op_list if meta.meta_info_def.HasField("stripped_op_list") else None
        copies = dict(_copies(meta.graph_def))
        self._graph = tf.Graph()
        with self._graph.as_default():
            tf.import_graph_def(_needed(meta), name="", producer_op_list=known)
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        try:
            self._restore(meta, directory, copies)
        except BaseException:
            self._session.close()
            raise

    def callable_of(self, feeds: Sequence[str], fetches: Sequence[str]) -> Run:
        """A run of the graph by names of tensors, kept while it is referred to. Raises what TensorFlow raises."""
        return self._callable(feed=feeds, fetch=fetches)

    def dtype(self, tensor: str) -> str:
        """TensorFlow's name of a tensor's dtype."""
        name = tensor if ":" in tensor else f"{tensor}:0"
        found: str = self._graph.get_tensor_by_name(name).dtype.base_dtype.name
        return found

    def close(self) -> None:
        """End it. Idempotent."""
        self._session.close()
        ops.dismantle_graph(self._graph)  # a graph and its operations refer to one another

    def _callable(self, **names: Sequence[str]) -> Run:
        # The public make_callable goes through Session.run, which judges shapes by the placeholder's and takes longer.
        made: Run = self._session._make_callable_from_options(config_pb2.CallableOptions(**names))  # noqa: SLF001  as Keras does
        return made

    def _restore(self, meta: Any, directory: Path, copies: Mapping[str, str]) -> None:
        assets = {name: directory / "assets" / file for name, file in _assets(meta)}
        variables = directory / "variables" / "variables"
        if meta.HasField("saver_def") and variables.with_name("variables.index").exists():
            saver = meta.saver_def
            self._once(saver.restore_op_name, {saver.filename_tensor_name: variables, **assets})
            self._fill(copies)
        if initializer := _initializer(meta):
            self._once(initializer, assets)

    def _fill(self, copies: Mapping[str, str]) -> None:
        """Give variables that were not restored the values of copies that were. copies: by variable.

        ``tf.saved_model.save`` of a Keras 3 model stores copies of the variables that its functions read, which the
        loader of TensorFlow 2 for Python knows by its objects, and TensorFlow Serving not at all.
        """
        if not copies:
            return
        with self._graph.as_default():
            there = {operation.name for operation in self._graph.get_operations()}
            pairs = {name: copy for name, copy in copies.items() if name in there and copy in there}
            handles = {name: self._graph.get_tensor_by_name(f"{name}:0") for pair in pairs.items() for name in pair}
            asked = {name: tf.raw_ops.VarIsInitializedOp(resource=handle) for name, handle in handles.items()}
            found = self.callable_of([], [flag.name for flag in asked.values()])()
            is_there = dict(zip(asked, found, strict=True))
            filled = []
            for name, copy in pairs.items():
                if is_there[copy] and not is_there[name]:
                    dtype = handles[copy].op.get_attr("dtype")
                    value = tf.raw_ops.ReadVariableOp(resource=handles[copy], dtype=dtype)
                    filled.append(tf.raw_ops.AssignVariableOp(resource=handles[name], value=value).name)
            if filled:
                self._callable(target=filled)()

    def _once(self, operation: str, paths: Mapping[str, Path]) -> None:
        run = self._callable(feed=list(paths), target=[operation])
        run(*[np.array(str(path).encode(), dtype=object) for path in paths.values()])


def _needed(meta: Any) -> Any:
    """The GraphDef without what neither a load nor a signature leads to: of a Keras model, three nodes of four."""
    names = [meta.saver_def.restore_op_name, meta.saver_def.filename_tensor_name, _initializer(meta)]
    names += [tensor for tensor, _ in _assets(meta)]
    for signature in meta.signature_def.values():
        for info in (*signature.inputs.values(), *signature.outputs.values()):
            names += (info.name, *(part.name for part in info.composite_tensor.components))
            sparse = info.coo_sparse
            names += (sparse.values_tensor_name, sparse.indices_tensor_name, sparse.dense_shape_tensor_name)
    nodes = {node.name: node for node in meta.graph_def.node}
    left, seen = [_node(name) for name in names], set[str]()
    while left:
        name = left.pop()
        if name in nodes and name not in seen:
            seen.add(name)
            node = nodes[name]
            left += (_node(each) for each in node.input)
            if "_class" in node.attr:
                left += (group.decode().removeprefix("loc:@") for group in node.attr["_class"].list.s)
    needed = graph_pb2.GraphDef(versions=meta.graph_def.versions, library=meta.graph_def.library)
    needed.node.extend(node for node in meta.graph_def.node if node.name in seen)
    return needed


def _node(name: str) -> str:
    """The node of a tensor, or of a control input."""
    return name.removeprefix("^").partition(":")[0]


def _copies(graph: Any) -> Iterator[tuple[str, str]]:
    """(variable, another that begins as its copy) of a GraphDef."""
    nodes = {node.name: node for node in graph.node}
    for node in graph.node:
        if node.op == "AssignVariableOp":
            copy, value = (nodes.get(each) for each in node.input[:2])
            read = nodes.get(value.input[0]) if value is not None and value.op == "ReadVariableOp" else None
            if read is not None and copy is not None and read.op == copy.op == "VarHandleOp":
                yield read.name, copy.name


def _assets(meta: Any) -> Iterator[tuple[str, str]]:
    """(tensor, file's name) of each asset; older programs write them as a collection."""
    found = list(meta.asset_file_def)
    for packed in [] if found else meta.collection_def[_ASSETS].any_list.value:
        asset = meta_graph_pb2.AssetFileDef()
        packed.Unpack(asset)
        found.append(asset)
    return ((asset.tensor_info.name, asset.filename) for asset in found)


def _initializer(meta: Any) -> str:
    """The operation that fills tables and the like after the variables are there; empty where there is none."""
    if INITIALIZER in meta.signature_def:
        name: str = meta.signature_def[INITIALIZER].outputs[INITIALIZER].name
        return name
    for key in _INITIALIZERS:
        if key in meta.collection_def:
            names = meta.collection_def[key].node_list.value
            if len(names) != 1:
                msg = f"The SavedModel has {len(names)} initializers in {key} instead of one."
                raise ValueError(msg)
            return str(names[0])
    return ""
