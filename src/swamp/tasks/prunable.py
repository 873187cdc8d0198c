"""Which weights of a model are pruned, and what is left dense."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from swamp.core.cost import is_turned_linear
from swamp.core.errors import brief, nearest

# The kinds of modules by name: their types, and patterns of the names that their weights have in them.
MODULE_KINDS: dict[str, tuple[tuple[type[nn.Module], ...], str]] = {
    "conv": ((nn.modules.conv._ConvNd,), "weight"),
    "linear": ((nn.Linear,), "weight"),
    "recurrent": ((nn.RNNBase, nn.RNNCellBase), "weight_*"),
    "attention": ((nn.MultiheadAttention,), "*_proj_weight"),
    "embedding": ((nn.Embedding, nn.EmbeddingBag), "weight"),
}
DEFAULT_KINDS = ("conv", "linear", "recurrent", "attention")  # of a user's own model
NAMED = 4  # so many weights are named in a list of what is not pruned


class Computed(NamedTuple):
    """A weight that is no parameter, because it is computed from others before each forward pass."""

    name: str
    by: str
    sources: frozenset[str]  # the names of the parameters that it is computed from
    removal: str  # the call that makes it a parameter again


def computed_weights(model: nn.Module) -> list[Computed]:
    """List the weights that weight_norm, spectral_norm, torch.nn.utils.prune or another parametrization computes."""
    found = []
    for path, module in model.named_modules():
        prefix = f"{path}." if path else ""
        for name, by, removal in _reparametrizations(module):
            here = [one for one, _ in module.named_parameters(remove_duplicate=False)]
            beside = {f"{name}_{suffix}" for suffix in ("g", "v", "orig")}
            sources = [one for one in here if one in beside or one.startswith(f"parametrizations.{name}.")]
            found.append(Computed(f"{prefix}{name}", by, frozenset(prefix + one for one in sources), removal))
    return found


def _reparametrizations(module: nn.Module) -> Iterator[tuple[str, str, str]]:
    """Yield the names of a module's computed tensors, what computes them, and the call that ends it."""
    if parametrize.is_parametrized(module):
        for name, steps in module.parametrizations.items():  # type: ignore[union-attr, operator]
            by = ", ".join(type(step).__name__.lstrip("_") for step in steps)
            yield name, by, f"torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})"
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, WeightNorm):
            yield hook.name, "weight_norm", f"torch.nn.utils.remove_weight_norm(module, {hook.name!r})"
        elif isinstance(hook, SpectralNorm):
            yield hook.name, "spectral_norm", f"torch.nn.utils.remove_spectral_norm(module, {hook.name!r})"
        elif isinstance(hook, BasePruningMethod):
            yield hook._tensor_name, "torch.nn.utils.prune", f"torch.nn.utils.prune.remove(module, {hook._tensor_name!r})"


def prunable_weights(model: nn.Module, include: Iterable[str], exclude: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights to prune, in parameter order.

    `include` and `exclude` hold module kinds (`MODULE_KINDS`: their weights) and patterns of parameter names. A tied weight matches by
    each of its names and is listed under the first. Weights that are computed from other parameters, as by weight_norm, are not pruned.
    """
    include = tuple(include)
    first = {parameter: name for name, parameter in model.named_parameters()}
    names = {name: first[parameter] for name, parameter in model.named_parameters(remove_duplicate=False)}
    by_kind = {kind: {names[name] for name in _of_kind(model, kind)} for kind in MODULE_KINDS}
    computed = computed_weights(model)
    sources = {names[source] for weight in computed for source in weight.sources}

    def matching(selectors: Iterable[str]) -> set[str]:
        chosen: set[str] = set()
        for selector in selectors:
            found = by_kind.get(selector, {counted for name, counted in names.items() if fnmatchcase(name, selector)})
            named = [weight for weight in computed if fnmatchcase(weight.name, selector)]
            if not found and not named and selector not in by_kind:
                raise ValueError(f"prunable pattern {selector!r} matches no parameter; {nearest(selector, [*by_kind, *names])}")
            chosen |= found
        return chosen - sources

    included = matching(include)
    chosen = included - matching(exclude)
    if not chosen and computed:
        one = computed[0]
        raise ValueError(
            f"no prunable weights: {one.name} is computed from other parameters ({one.by}); make it a parameter again ({one.removal})"
        )
    if included and not chosen:
        raise ValueError(f"no prunable weights: exclude leaves out all that {', '.join(include)} select")
    if not chosen:
        known = _some([name for name, parameter in model.named_parameters() if parameter.ndim > 1])
        advice = f"; prunable takes patterns of names, too: {', '.join(known)}" if known else ""
        raise ValueError(f"no prunable weights: {', '.join(include) or 'an empty list'} selects nothing in this model{advice}")
    return {name: tuple(parameter.shape) for name, parameter in model.named_parameters() if name in chosen}


def require_selectors(**given: Any) -> None:
    """Check that selectors of weights are lists of texts. The letters of a single text would be taken for patterns."""
    for name, value in given.items():
        if isinstance(value, str) or not isinstance(value, Collection) or not all(isinstance(one, str) for one in value):
            example = [value] if isinstance(value, str) else ["conv", "head.*"]
            raise ValueError(f"{name} = {brief(value)}: expected a list, such as {example}")


def _of_kind(model: nn.Module, kind: str) -> Iterator[str]:
    """Yield the names of all weights of a kind, each under all of its names."""
    types, pattern = MODULE_KINDS[kind]
    for path, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, types) or (kind == "linear" and is_turned_linear(module)):
            own = (name for name, parameter in module._parameters.items() if parameter is not None and fnmatchcase(name, pattern))
            yield from (f"{path}.{name}".lstrip(".") for name in own)


def transposed_weights(model: nn.Module, names: Collection[str]) -> list[str]:
    """Return those of the named weights whose first dimension is their layer's inputs, as in transposed convolutions."""
    modules = model.named_modules()
    transposed = [path for path, module in modules if isinstance(module, nn.modules.conv._ConvTransposeNd) or is_turned_linear(module)]
    return [name for path in transposed if (name := f"{path}.weight".lstrip(".")) in names]


def not_pruned(model: nn.Module, prunable: Mapping[str, tuple[int, ...]]) -> list[str]:
    """Say, in lines, which parameters are not pruned, and their share of all parameters. There is no line if all are pruned.

    >>> model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 2))
    >>> not_pruned(model, prunable_weights(model, ["linear"]))
    ['not pruned: 0.weight, 2 biases, 1 norm: 57.9 % of all parameters']
    """
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    total = sum(sizes.values())
    norms = {path for path, module in model.named_modules() if path and "norm" in type(module).__name__.lower()}
    computed = [weight for weight in computed_weights(model) if not weight.sources.isdisjoint(sizes)]
    lines = []
    for by, removal in dict.fromkeys((weight.by, weight.removal) for weight in computed):
        alike = [weight for weight in computed if (weight.by, weight.removal) == (by, removal)]
        size = sum(sizes.get(source, 0) for weight in alike for source in weight.sources)
        why = f"computed from other parameters by {by} ({removal} makes a weight prunable)"
        lines.append(
            f"not pruned: {', '.join(_some([weight.name for weight in alike]))}, {why}: {100 * size / total:.1f} % of all parameters"
        )
    sources = {source for weight in computed for source in weight.sources}
    rest = [name for name in sizes if name not in prunable and name not in sources]
    if not rest:
        return lines
    of_norms = {name for name in rest if name.rpartition(".")[0] in norms}
    biases = {name for name in rest if name not in of_norms and "bias" in name.rpartition(".")[2]}
    others = [name for name in rest if name not in of_norms and name not in biases]
    groups = _some(others)
    groups += [_counted(len(biases), "bias")] if biases else []
    groups += [_counted(len({name.rpartition(".")[0] for name in of_norms}), "norm")] if of_norms else []
    size = sum(sizes[name] for name in rest)
    return [f"not pruned: {', '.join(groups)}: {100 * size / total:.1f} % of all parameters", *lines]


def _some(names: list[str]) -> list[str]:
    """Return the first names, and how many others there are."""
    return names[:NAMED] + ([_counted(len(names) - NAMED, "other parameter")] if len(names) > NAMED else [])


def _counted(num: int, what: str) -> str:
    """
    >>> _counted(1, "norm"), _counted(3, "bias")
    ('1 norm', '3 biases')
    """
    return f"{num} {what}" if num == 1 else f"{num} {what}{'es' if what.endswith('s') else 's'}"
