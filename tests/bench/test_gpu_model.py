"""What a step costs on a GPU, on paper: the counts, and the page made of them."""

import json

import pytest

from bench import _gpu_counts, _scenario, gpu_model


def counts(**changed):
    traffic = [gpu_model.Traffic(n, 10.0, 600 * n * n + 7000 * n, 20) for n in (1000, 2000, 3000)]
    asked = [gpu_model.Asked(blocks, 1000 + 50 * blocks, 20, 20) for blocks in (2, 4, 8)]
    given = {
        "traffic": {"auto": traffic},
        "peaks": {"auto": dict.fromkeys(gpu_model.SIZES, 10**9)},
        "asked": {"auto": asked},
    }
    return gpu_model.Counts(**(given | changed))


def test_the_model_of_a_gpu():
    assert gpu_model.bytes_moved(counts().traffic["auto"])(50_000) == pytest.approx(600 * 25e8 + 7000 * 5e4)
    launches = gpu_model.launches_of(counts().asked["auto"])
    assert launches(20_000) == 1000 + 50 * _gpu_counts.n_blocks(20_000)
    # Many launches take longer than few bytes, and the other way round.
    assert gpu_model.model_seconds(1.7e9, 10_000, 100, 2e12) == pytest.approx(0.052)
    assert gpu_model.model_seconds(1.7e12, 10_000, 100, 2e12) == pytest.approx(1.002)
    assert gpu_model.floor_seconds(20_000, 2e12) == pytest.approx(0.028, rel=0.01)


def test_the_table_of_the_model():
    lines = gpu_model.table(counts(), "auto", {"n = 5000, init auto": [1.0, 0.125]}).splitlines()
    assert len(lines) == 2 + len(gpu_model.SIZES)
    assert lines[2].startswith("| 5,000 | 10 | 15 GB | ") and lines[2].endswith("| 125 ms |")
    assert lines[3].endswith("|  |")
    without = gpu_model.table(counts(asked={}), "auto").splitlines()
    assert without[2].startswith("| 5,000 | 10 | 15 GB |  |  | 1.00 GB |  |  | 2 ms |")
    assert all("+0.0%" in line for line in gpu_model.checks(counts()))


def test_counts_are_kept(tmp_path):
    path = tmp_path / "counts.json"
    assert gpu_model.Counts.read(path) == gpu_model.Counts()
    counts().write(path)
    assert gpu_model.Counts.read(path) == counts()


def test_the_tables_go_between_the_marks():
    begin, end = gpu_model.MARKS
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    assert gpu_model.with_part(page, "new") == f"before\n{begin}\nnew\n{end}\nafter\n"
    with pytest.raises(ValueError, match="no marks"):
        gpu_model.with_part("nothing", "new")


def test_measured_steps_are_found(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"details": {"step-on-device": {"seconds": {"n = 5000, init auto": [0.5]}}}}))
    assert gpu_model.measured_steps(path) == {"n = 5000, init auto": [0.5]}
    path.write_text(json.dumps({"details": {}}))
    assert gpu_model.measured_steps(path) == {}


def test_traffic_of_known_operations():
    torch = pytest.importorskip("torch")
    n = 64
    w, v, index = torch.ones((n, n)), torch.ones((n, 2)), torch.arange(8)
    with _gpu_counts._watch(n) as seen:
        w.T[:8, :]  # views move nothing
    assert (seen.entries, seen.n_bytes) == (0, 0)
    with _gpu_counts._watch(n) as seen:
        product = w @ v
    assert (seen.entries, seen.n_bytes) == (n * n, 4 * (n * n + 2 * n + 2 * n))
    assert seen.highest == 4 * 2 * n
    with _gpu_counts._watch(n) as seen:
        torch.index_select(w, 0, index)
    assert seen.entries == 8 * n
    with _gpu_counts._watch(n) as seen:
        w[:8, :] = 2.0 * w[:8, :]
    assert seen.entries == 2 * 8 * n  # read once, written once
    assert product.shape == (n, 2)


def test_memory_is_given_back():
    torch = pytest.importorskip("torch")
    with _gpu_counts._watch(1000) as seen:
        for _ in range(5):
            x = torch.empty((100,), device="meta")
            x = x + 1
    assert seen.highest == 2 * 400


def test_a_step_is_counted_as_on_a_device():
    pytest.importorskip("torch")
    traffic = _gpu_counts.count_traffic(80, "previous")
    assert traffic.lloyd <= 3 * _scenario.LLOYD and traffic.passes > 3
    assert 0 < _gpu_counts.peak_bytes(400, "auto") < 20 * 400**2 * 8
    assert _gpu_counts.n_blocks(10, 8 * 10 * 4) == 3


def test_launches_are_counted_on_cupy():
    pytest.importorskip("cupy_cpu")
    few, more, most = (_gpu_counts.count_asked(48, blocks, "previous") for blocks in (2, 3, 4))
    assert (few.blocks, more.blocks, most.blocks) == (2, 3, 4)
    assert most.launches > more.launches > few.launches
    assert few.waits == more.waits == most.waits
