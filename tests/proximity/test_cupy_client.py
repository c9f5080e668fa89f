"""A cluster whose workers have a GPU, and a client that has none: chunks are made on the GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cupy_cpu", reason="needs CuPy running on the CPU, which can hide its devices")
pytest.importorskip("distributed")

CLIENT = """
import cupy, dask.array as da, distributed, numpy as np
import affect_xp as ax

def gram(x, y):  # on a worker
    import cupy
    return cupy.asnumpy(cupy.asarray(x) @ cupy.asarray(y).T)

def main():
    rng = np.random.default_rng(0)
    steps = [3 * np.eye(4)[np.arange(40) % 4] + rng.normal(size=(40, 4)) for _ in range(3)]
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    model = ax.Affect(ax.KMeans(4), random_state=0)
    with distributed.LocalCluster(**options, env={"CUPY_CPU_DEVICES": "1"}) as cluster, cluster.get_client():
        assert cupy.cuda.runtime.getDeviceCount() == 0
        for x in steps:
            x = da.from_array(x, chunks=(20, 4))
            w = da.blockwise(gram, "ij", x, "ia", x, "ja", concatenate=True, meta=np.empty((0, 0)))
            model.partial_fit(w)
    expected = ax.Affect(ax.KMeans(4), random_state=0).fit([x @ x.T for x in steps])
    assert np.array_equal(model.labels_, expected.labels_)
    assert abs(model.alpha_ - expected.alpha_) < 1e-12
    print("the same")

if __name__ == "__main__":
    main()
"""


def test_a_client_without_a_gpu_takes_chunks_made_on_gpus(tmp_path):
    script = tmp_path / "client.py"
    script.write_text(CLIENT)
    path = f"{Path(__file__).parents[2]}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environment = os.environ | {"CUPY_CPU_DEVICES": "0", "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "the same\n", done.stderr
