"""Reads a graph node by node, and makes the program of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from swamp_runtime.model import SIDES
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.fx import Node
from torch.utils import _pytree as pytree

from swamp.core.errors import reason_of
from swamp.export.program.builder import FixedTensor, ImageView, IndexNode, ProgramBuilder, Scores, identity, shapes_of
from swamp.export.program.graphs import exported_graph, operation_name, origin_of, user_inputs
from swamp.export.program.layouts import BATCH, FREE, Dimension, ImageSize, NoProgram, axis, is_free, layout_of, length_of
from swamp.export.program.operators import OPERATIONS
from swamp.export.program.probing import Probes, concrete
from swamp.export.program.views import END

SHAPE_ALONE = ("zeros_like", "ones_like", "full_like", "empty_like", "new_ones", "new_zeros", "new_full")  # they read no number
BROADCASTING = ("transpose", "permute", "unsqueeze", "add", "sub", "mul", "div", "clone", "alias", "to", "_to_copy", "neg")
FEWEST, MANY = 2, 1 << 30  # torch.export lets every batch have at least 2 examples; a bound that it found in the forward pass is another
# Primes, so that the factors of a product show which sizes were multiplied.
BATCH_SIZE = (FREE << 10) + 15
OTHER_SIZES = [(FREE << 4) + more for more in (31, 115, 117, 165, 175, 177, 201, 213, 253, 261, 325, 445, 471, 487, 555, 565)]


class NetworkProgram(NamedTuple):
    """A program, and the tensors that it needs besides those of the model."""

    program: dict[str, Any]
    tensors: dict[str, Tensor]


class Unreadable(NamedTuple):
    """A number of the graph that is computed from sizes but is not an integer, such as a square root, and that a program cannot hold."""


def read_program(
    model: nn.Module,
    inputs: Sequence[Any] = (),
    named: Mapping[str, Any] | None = None,
    *,
    free_length: bool = False,
    free_size: bool = False,
) -> NetworkProgram:
    """Return the program of a model, which is put into evaluation mode, or raise `NoProgram` with one sentence.

    The inputs are examples of what `forward` takes; their first dimension is the batch. The program takes inputs of their sizes, of any
    length of sequences if `free_length`, and of any height and width of images if `free_size`.
    """
    if any(parameter.dtype != torch.float32 for parameter in model.parameters()):
        raise NoProgram("a program computes in float32, and this network has weights of another type")
    exported = exported_graph(model.eval(), tuple(inputs), dict(named or {}), free_length, free_size)
    refused = []
    for features_last in (True, False):  # whether inputs of three dimensions are (batch, tokens, features) or (batch, channels, tokens)
        try:
            return GraphReader(exported, model, features_last).read(free_length, free_size)
        except NoProgram as error:
            refused.append(error)
            if all(len(node.meta["val"].shape) != 3 for node in user_inputs(exported)):
                break
    raise refused[0]


class GraphReader:
    """Reads one graph."""

    def __init__(self, exported: ExportedProgram, model: nn.Module, features_last: bool) -> None:
        self.exported, self.features_last = exported, features_last
        self.user_inputs = user_inputs(exported)
        self.values: dict[Node, Any] = {}
        self.symbols, batch = self._valued_symbols()
        self.batch: Dimension = axis(BATCH, self.symbols[min(batch, key=str)])
        self.described: list[dict[str, Any]] = []
        images = {node: self._input(number, node) for number, node in enumerate(self.user_inputs)}
        tensors = self._tensors()
        ranges = {symbol: exported.range_constraints[symbol] for symbol in self.symbols}
        stored = {node: tensor for node, (tensor, _) in tensors.items()}
        probes = Probes(exported.graph.nodes, self._integer_examples(), stored, ranges, batch)
        self.builder = ProgramBuilder(self.batch, probes, _names(model), images)
        for node, image in images.items():
            self.values[node] = image if node.meta["val"].is_floating_point() else IndexNode(node)
        for node, (tensor, trained) in tensors.items():
            self.values[node] = FixedTensor(tensor, node, trained)

    # -- the inputs of the graph ---------------------------------------------------------------------------------------------------

    def _valued_symbols(self) -> tuple[dict[Any, int], set[Any]]:
        """Return values of the symbols in sizes, unlike any size of a real tensor, and the symbols of the batch."""
        shapes = [node.meta["val"].shape for node in self.user_inputs]
        firsts = {getattr(getattr(shape[0], "node", None), "expr", None) for shape in shapes if len(shape)}
        if not firsts or not all(getattr(first, "is_Symbol", False) for first in firsts):
            raise NoProgram(
                "the graph takes only batches of one size: the first dimension of every input must be the batch, "
                "and the forward pass must write x.shape[0], not len(x) or int(…)"
            )
        bounds = [self.exported.range_constraints[first] for first in firsts]
        if any(bound.lower > FEWEST or bound.upper < MANY for bound in bounds):
            raise NoProgram("the forward pass depends on the number of examples in a batch")
        every = {symbol for shape in shapes for size in shape if isinstance(size, torch.SymInt) for symbol in size.node.expr.free_symbols}
        values = dict.fromkeys(firsts, BATCH_SIZE)  # Inputs that the graph does not compare have symbols of their own.
        for number, symbol in enumerate(sorted(every - firsts, key=str)):
            # A multiple of 64, so that an image can be halved several times.
            values[symbol] = 64 * OTHER_SIZES[number]
        return values, firsts

    def _input(self, number: int, node: Node) -> ImageView:
        """Return an input as an image, and describe it."""
        value = node.meta["val"]
        floats, shape = value.is_floating_point(), self._sized(value.shape)
        kinds = {(True, 2): "vector", (True, 3): "sequence" if self.features_last else "signal", (True, 4): "image", (False, 2): "tokens"}
        kind = kinds.get((floats, len(shape)))
        if kind is None or (floats and value.dtype != torch.float32):
            shown = ["batch", *("free" if is_free(size) else size for size in shape[1:])]
            raise NoProgram(
                f"the input {node.name} of type {str(value.dtype).removeprefix('torch.')} and shape ({', '.join(map(str, shown))}) is "
                "neither an image, a vector, a sequence nor tokens"
            )
        size = {
            "vector": lambda: ImageSize(shape[1], 1, 1),
            "image": lambda: ImageSize(*shape[1:]),
            "sequence": lambda: ImageSize(shape[2], 1, shape[1]),
            "signal": lambda: ImageSize(shape[1], 1, shape[2]),
            "tokens": lambda: ImageSize(1, 1, shape[1]),
        }[kind]()
        if is_free(size.channels):
            raise NoProgram(f"the number of channels or features of the input {node.name} is free")
        self.described.append({"name": node.name, "kind": kind, "size": [None if is_free(side) else side for side in size]})
        return ImageView(number, size, layout_of(kind, self.batch, size))

    def _integer_examples(self) -> dict[Node, Tensor]:
        """Return the examples of the integer inputs."""
        pairs = zip(self.user_inputs, self._examples(), strict=True)
        return {node: leaf for node, leaf in pairs if not leaf.is_floating_point()}

    def _examples(self) -> list[Tensor]:
        return [leaf for leaf in pytree.tree_leaves(self.exported.example_inputs or ((), {})) if isinstance(leaf, Tensor)]

    def _tensors(self) -> dict[Node, tuple[Tensor, bool]]:
        """Return the model's tensors by placeholder, and whether they are parameters."""
        signature = self.exported.graph_signature
        names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
        known = {**self.exported.state_dict, **self.exported.constants}
        placeholders = [node for node in self.exported.graph.nodes if node.op == "placeholder" and node.name in names]
        return {node: (known[names[node.name]].detach(), node.name in signature.inputs_to_parameters) for node in placeholders}

    def _sized(self, sizes: Iterable[Any]) -> list[int]:
        return [concrete(size, self.symbols) for size in sizes]

    # -- its nodes --------------------------------------------------------------------------------------------------------------------

    def read(self, free_length: bool, free_size: bool) -> NetworkProgram:
        for entry in self.described:
            asked = free_length if entry["kind"] in ("tokens", "sequence", "signal") else free_size and entry["kind"] == "image"
            if asked and entry["size"][2] is not None:
                raise NoProgram(f"the forward pass relies on the size of the input {entry['name']}, which therefore cannot be free")
        self._require_equal_sizes()
        needed = _needed(self.exported.graph.nodes)
        for node in self.exported.graph.nodes:
            if node.op == "output":
                outputs = self._outputs(node)
            elif node in needed and node not in self.values:
                try:
                    self.values[node] = self._value(node)
                except NoProgram as error:
                    raise NoProgram(f"{operation_name(node)} cannot be part of a program{origin_of(node)}: {error}") from None
        return _pruned(self.described, self.builder, outputs)

    def _require_equal_sizes(self) -> None:
        """A call has one free height and width for all images, and one free length for all other inputs."""
        found: dict[tuple[bool, str], int] = {}
        for entry, example in zip(self.described, self._examples(), strict=True):
            described = dict(zip(("channels", "height", "width"), entry["size"], strict=True))
            for side, size in zip(SIDES[entry["kind"]], example.shape[1:], strict=True):
                if described[side] is None and found.setdefault((entry["kind"] == "image", side), size) != size:
                    raise NoProgram(f"the input {entry['name']} and an earlier one differ in a free size, which must be the same for both")

    def _value(self, node: Node) -> Any:
        result = node.meta.get("val")
        if node.op == "placeholder":  # an argument that is no tensor
            return result
        if node.op == "get_attr":  # a graph inside the graph
            raise NoProgram("this part of the forward pass has a context of its own, such as torch.autocast, or is a branch")
        if isinstance(result, (int, torch.SymInt)) and not isinstance(result, bool):
            return concrete(result, self.symbols)
        if isinstance(result, (torch.SymFloat, torch.SymBool)):
            return Unreadable()
        arguments, options = pytree.tree_map(
            lambda leaf: self.values[leaf] if isinstance(leaf, Node) else leaf,
            (list(node.args), dict(node.kwargs)),
            is_leaf=lambda leaf: isinstance(leaf, Node),
        )
        given = pytree.tree_leaves([arguments, options], is_leaf=lambda leaf: isinstance(leaf, tuple))
        if any(isinstance(leaf, Unreadable) for leaf in given):
            raise NoProgram("it computes with a free size")
        self.builder.node, self.builder.shape = node, shapes_of(result, lambda size: concrete(size, self.symbols))
        known = self._known(node, arguments, options, given)
        if known is not None:
            return known
        name = operation_name(node)
        if name not in OPERATIONS:
            raise NoProgram("this operation is not supported")
        try:
            return self._checked(OPERATIONS[name](self.builder, *arguments, **options), result)
        except (TypeError, AttributeError, IndexError, RuntimeError) as error:
            raise NoProgram(f"these arguments are not supported ({reason_of(error)})") from None

    def _checked(self, value: Any, result: Any) -> Any:
        """Return a value whose layout has the shape of the graph's tensor."""
        if isinstance(value, list):
            return [self._checked(one, tensor) for one, tensor in zip(value, result, strict=True)]
        if isinstance(value, (ImageView, Scores)) and [length_of(one) for one in value.layout] != self._sized(result.shape):
            raise NoProgram("it repeats values, which is supported only in a sum or product with a larger image")
        return value

    def _known(self, node: Node, arguments: list[Any], options: dict[str, Any], given: list[Any]) -> Any:
        """Return the value of a node that depends on no image, or None."""
        name = operation_name(node)
        if name in ("getitem", "embedding"):
            return None
        fixed = [leaf for leaf in given if isinstance(leaf, FixedTensor)]
        images = [leaf for leaf in given if isinstance(leaf, tuple) and not isinstance(leaf, (FixedTensor, IndexNode))]
        trained = any(leaf.trained for leaf in fixed)
        if not trained and (not images or name in SHAPE_ALONE):
            self.builder.probes.computed.add(node)
        free = any(is_free(leaf) for leaf in given if leaf != END) or any(leaf.rows for leaf in fixed)
        indices = [leaf for leaf in given if isinstance(leaf, IndexNode)]
        complete = all(self._is_complete(leaf) for leaf in fixed) or name in BROADCASTING
        if not indices and not images and not free and complete:
            return self._folded(node, arguments, options, trained)
        if len(fixed) == 1 and fixed[0] is arguments[0] and not images and fixed[0].tensor.is_floating_point():
            return _spread(name, fixed[0], node, arguments[1:], self.builder.shape) or (None if trained else IndexNode(node))
        return IndexNode(node) if node in self.builder.probes.computed else None

    def _is_complete(self, fixed: FixedTensor) -> bool:
        """Whether a tensor has the shape of the graph's, and is not one that stands for its repetitions."""
        return list(fixed.tensor.shape) == self._sized(fixed.node.meta["val"].shape)

    def _folded(self, node: Node, arguments: list[Any], options: dict[str, Any], trained: bool) -> Any:
        """Compute now what depends on no input."""
        plain = pytree.tree_map(
            lambda leaf: leaf.tensor if isinstance(leaf, FixedTensor) else leaf,
            (arguments, options),
            is_leaf=lambda leaf: isinstance(leaf, FixedTensor),
        )
        with torch.no_grad():
            found = node.target(*plain[0], **plain[1])  # type: ignore[operator]
        if isinstance(found, Tensor):
            return FixedTensor(found, node, trained)
        return [FixedTensor(one, node, trained) if isinstance(one, Tensor) else one for one in found] if found is not None else Unreadable()

    # -- its outputs ------------------------------------------------------------------------------------------------------------------

    def _outputs(self, node: Node) -> list[dict[str, Any]]:
        answers = list(node.args[0])  # type: ignore[arg-type]
        spec = self.exported.call_spec.out_spec
        names = _output_names(spec, len(answers))
        found = []
        for name, answer in zip(names, answers, strict=True):
            if answer is None:
                continue
            value = self.values.get(answer) if isinstance(answer, Node) else answer
            if not isinstance(value, ImageView):
                raise NoProgram(f"the output {name} depends on no image, vector or embedding")
            found.append({"name": name, **self._output(name, value)})
        if not found:
            raise NoProgram("the network has no output")
        return found

    def _output(self, name: str, x: ImageView) -> dict[str, Any]:
        x = self.builder.flat(x)
        kinds = ("image", "vector", "signal", "sequence") if x.size.pixels == 1 else ("image", "signal", "sequence")
        kind = next((kind for kind in kinds if x.layout == layout_of(kind, self.batch, x.size)), None)
        if kind is None:
            raise NoProgram(f"the output {name} is neither an image, a vector nor a sequence, or its dimensions are in another order")
        return {"value": x.number if kind == "image" else self.builder.sequence(x).number, "kind": kind}


def _spread(name: str, fixed: FixedTensor, node: Node, options: Sequence[Any], shape: Sequence[int]) -> FixedTensor | None:
    """Return what a view makes of a fixed tensor for free sizes: it is repeated for each example, or has a row for each token."""
    tensor = fixed.tensor
    if name in ("expand", "repeat") and all(length in (1, size) for length, size in zip(tensor.shape[::-1], shape[::-1], strict=False)):
        return fixed._replace(node=node) if fixed.rows is None or len(shape) == tensor.ndim else None
    if name == "slice" and fixed.rows is None:
        defaults: list[Any] = [0, None, None, 1]
        dimension, start, end, step = [*options, *defaults[len(options) :]]
        if is_free(end) and end != END and step == 1 and not is_free(start) and (start or 0) >= 0:
            return FixedTensor(tensor, node, fixed.trained, (dimension % tensor.ndim, start or 0))
    if name == "slice" and list(shape) and fixed.rows is not None and (options[1] or 0) == 0 and options[2] == END:
        return fixed._replace(node=node)
    if name == "unsqueeze" and fixed.rows is not None:
        place = options[0] % (tensor.ndim + 1)
        return FixedTensor(tensor.unsqueeze(place), node, fixed.trained, (fixed.rows[0] + (place <= fixed.rows[0]), fixed.rows[1]))
    if name in ("clone", "to", "_to_copy", "alias", "dropout", "contiguous", "detach"):
        return fixed._replace(node=node)
    return None


def _needed(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes that an output depends on."""
    needed: set[Node] = set()
    for node in reversed(list(nodes)):
        if node.op == "output" or node in needed:
            needed.update(node.all_input_nodes)
    return needed


def _names(model: nn.Module) -> dict[Any, str]:
    """Return the names of the model's tensors; of several names of one tensor the first, as in a state."""
    found: dict[Any, str] = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        if name in model.state_dict() and tensor.numel():
            found.setdefault(identity(tensor.detach()), name)
    return found


def _output_names(spec: Any, count: int) -> list[str]:
    """Return the names of a network's outputs: those of its dictionary or data class, or numbers."""
    paths, _ = pytree.tree_flatten_with_path(pytree.tree_unflatten(list(range(count)), spec))
    names = [".".join(str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", "")))) for key in path) for path, _ in paths]
    return ["output" if not name else f"output.{name}" if name[0].isdigit() else name for name in names]


def _pruned(inputs: list[dict[str, Any]], builder: ProgramBuilder, outputs: list[dict[str, Any]]) -> NetworkProgram:
    """Return the program without nodes that no output depends on."""
    first, needed = len(inputs), {output["value"] for output in outputs}
    for number in reversed(range(len(builder.nodes))):
        if first + number in needed:
            needed.update(builder.nodes[number]["in"])
    kept = [number for number in range(len(builder.nodes)) if first + number in needed]
    numbers = {**{number: number for number in range(first)}, **{first + old: first + new for new, old in enumerate(kept)}}
    nodes = [{**builder.nodes[old], "in": [numbers[value] for value in builder.nodes[old]["in"]]} for old in kept]
    used = {value for node in nodes for value in node.values() if isinstance(value, str)}
    program = {"inputs": inputs, "nodes": nodes, "outputs": [{**output, "value": numbers[output["value"]]} for output in outputs]}
    return NetworkProgram(program, {name: tensor for name, tensor in builder.tensors.items() if name in used})
