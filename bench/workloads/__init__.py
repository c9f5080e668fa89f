"""All workloads, in the order of the table."""

from . import chunked, dense, factored, imports, linkage, spectral, step_on_device

WORKLOADS = (
    *dense.WORKLOADS,
    *factored.WORKLOADS,
    *chunked.WORKLOADS,
    *spectral.WORKLOADS,
    *linkage.WORKLOADS,
    *imports.WORKLOADS,
    *step_on_device.WORKLOADS,
)
