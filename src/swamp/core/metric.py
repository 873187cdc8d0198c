"""Describes metrics: how a measured number is called, written, ranked and drawn."""

from __future__ import annotations

from msgspec import Struct, structs


class Metric(Struct, frozen=True, omit_defaults=True):
    """Describes a metric. Rows store the descriptions of their metrics, so that whatever shows a row need not know them."""

    name: str
    label: str = ""  # what tables call it, with its unit; by default its name
    scale: float = 1.0  # what a value is multiplied by before it is written: 100 for a percentage
    digits: int = 4  # after the decimal point
    maximise: bool | None = None  # whether more is better; None where it is not known, so that nothing is ranked
    # The name of 1 − value. Charts draw it, in percent, because errors begin at zero. If it is empty, they draw the value itself.
    error: str = ""

    def __post_init__(self) -> None:
        structs.force_setattr(self, "scale", float(self.scale))  # It is read back as a float, and checksums must agree.
        if not self.label:
            structs.force_setattr(self, "label", self.name)

    def scaled(self, value: float) -> float:
        """Return a value in the unit that tables write."""
        return self.scale * value

    def text(self, value: float) -> str:
        """Return a value as tables write it.

        >>> Metric("accuracy", "accuracy %", scale=100, digits=2).text(0.9412)
        '94.12'
        """
        return f"{self.scaled(value):.{self.digits}f}"

    def with_unit(self, number: str) -> str:
        """Return what the metric is called, its number, and its unit, which tables have in the heading.

        >>> Metric("accuracy", "accuracy %").with_unit("98.15"), Metric("nll", "NLL").with_unit("0.0502")
        ('accuracy 98.15 %', 'NLL 0.0502')
        """
        name = self.label.removesuffix(" %")
        return f"{name} {number}{self.label[len(name) :]}"

    def chart_value(self, value: float) -> float:
        """Return what charts draw of a value.

        >>> round(Metric("accuracy", error="error").chart_value(0.9), 6), Metric("ece", scale=100).chart_value(0.02)
        (10.0, 2.0)
        """
        return 100 * (1 - value) if self.error else self.scaled(value)

    @property
    def chart_label(self) -> str:
        """The name of what charts draw."""
        test_set = self.name.rpartition(".")[0]
        if self.error:
            return f"{test_set or 'test'} {self.error} %"
        return self.label if test_set else f"test {self.label}"

    def of_test_set(self, test_set: str) -> Metric:
        """Return the description of the same metric on a further test set.

        >>> Metric("nll", "NLL").of_test_set("imagenet-v2").label
        'imagenet-v2 NLL'
        """
        return structs.replace(self, name=f"{test_set}.{self.name}", label=f"{test_set} {self.label}")
