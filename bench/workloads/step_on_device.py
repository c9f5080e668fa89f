"""The step described by `gpu_model`, measured on a GPU for the last column of its table."""

from collections.abc import Iterator

import affect_xp as ax

from .. import _scenario
from .._device import Cuda
from .._measure import Action
from .._report import Curve, Row
from .._suite import Case, Measured, Setting, Workload

SIZES = (5_000, 20_000, 50_000, 100_000)
MATRICES = 5  # matrices that must fit: Ψ̂ of both models, W, the one that is read, and those of smaller sizes


def step(setting: Setting) -> Case:
    """A float32 step by the number of objects, relative to reading W once."""
    device = setting.device
    assert isinstance(device, Cuda)
    wanted = setting.rows_at(full=SIZES, quick=SIZES[:2], tiny=(60, 120))
    sizes = [n for n in wanted if MATRICES * 4 * n * n < device.free_bytes()]
    ours: dict[str, Action] = {}
    peers: dict[str, Action] = {}
    for n in sizes:
        for init in _scenario.INITS:
            ours[f"n = {n}, init {init}"] = _steps(device, n, init)
        peers[f"n = {n}"] = _read(device, n)

    def rows(measured: Measured) -> Iterator[Row]:
        for init in _scenario.INITS:
            seconds = [measured.last(f"n = {n}, init {init}") for n in sizes]
            for n, spent in zip(sizes, seconds, strict=True):
                ratio = spent / measured.last(f"n = {n}")
                what = f"float32 step on the device, init {init}, n = {n:,}"
                yield Row(what, "reading W once", ratio, note=f"{1000 * spent:,.1f} ms")
            curve = Curve("time", sizes, seconds)
            if len(sizes) > 1:
                yield Row.growth(f"float32 step on the device, init {init}", "n²", curve)

    return Case(ours, peers, rows)


def _steps(device: Cuda, n: int, init: str) -> Action:
    """Return three steps; W is created on the device at each step, so that only one is in memory."""
    features = [device.array(x) for x in _scenario.features(n)]

    def action() -> Iterator[float]:
        take = _scenario.model(init)
        for x in features:
            w = x @ x.T
            started = device.timer.start()
            take(ax.Dense(w))
            yield device.timer.stop(started)
            del w

    return action


def _read(device: Cuda, n: int) -> Action:
    (x,) = _scenario.features(n, 1)

    def action() -> Iterator[float]:
        w = device.array(x)
        w = w @ w.T
        started = device.timer.start()
        w.sum()
        yield device.timer.stop(started)

    return action


WORKLOADS = (Workload("step-on-device", step, devices=("cuda",)),)
