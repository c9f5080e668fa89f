"""The model of the cost of a step on a GPU: the counts, and the page generated from them."""

import json

import pytest

from bench import _gpu_counts, gpu_model


def asked(n, **changed):
    given = {"launches": 100, "waits": 20, "n_bytes": 40 * n * n + 7000 * n, "entries": 10 * n * n}
    return gpu_model.Asked(n, **(given | {"peak": 5000 * n, "lloyd": 12} | changed))


def counts():
    sizes = [asked(n) for n in (300, 600, 900)]
    return gpu_model.Counts({"auto": sizes}, {"auto": asked(900, launches=150)})


def test_the_model_of_a_gpu():
    few = counts().asked["auto"]
    assert gpu_model.bytes_moved(few)(50_000) == pytest.approx(40 * 25e8 + 7000 * 5e4)
    assert gpu_model.passes(few) == 10
    # Launches take longer than moving few bytes, and less time than moving many.
    assert gpu_model.gpu_seconds(few, 100, 2e12) == pytest.approx(100 * 10e-6 + 20 * 20e-6)
    moved = 40 * 1e10 + 7000 * 1e5
    assert gpu_model.gpu_seconds(few, 100_000, 2e12) == pytest.approx(moved / 1.7e12 + 20 * 20e-6)
    assert gpu_model.floor_seconds(few, 20_000, 2e12) == pytest.approx(10 * 4 * 4e8 / 1.7e12)


def test_the_break_even_is_where_the_cpu_takes_as_long():
    few = counts().asked["auto"]
    for bandwidth in gpu_model.GPUS.values():
        n = gpu_model.break_even(few, bandwidth)
        assert gpu_model.gpu_seconds(few, n, bandwidth) < gpu_model.floor_seconds(few, n, gpu_model.CPU)
        assert gpu_model.gpu_seconds(few, n - 100, bandwidth) >= gpu_model.floor_seconds(
            few, n - 100, gpu_model.CPU
        )
    with pytest.raises(ValueError, match="never faster"):
        gpu_model.break_even(few, gpu_model.CPU / 10)


def test_the_table_of_the_model():
    lines = gpu_model.table(counts(), "auto", {"n = 5000, init auto": [1.0, 0.125]}).splitlines()
    assert len(lines) == 2 + len(gpu_model.SIZES)
    assert lines[3].startswith("| 5,000 | 1.0 GB | 100 | 20 | 0.03 GB |") and lines[3].endswith("| 125 ms |")
    assert lines[4].endswith("|  |")
    part = gpu_model.page_part(counts())
    assert "10.0 passes over n×n, 40 bytes per entry" in part and "150 launches" in part
    assert "7,000 at n = 300" in part


def test_counts_are_kept(tmp_path):
    path = tmp_path / "counts.json"
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


def test_a_step_is_counted_on_cupy():
    pytest.importorskip("cupy_cpu")
    one, cut = (_gpu_counts.count_asked(60, "previous", blocks=blocks) for blocks in (1, 4))
    assert (one.launches, one.waits) == (cut.launches, cut.waits)
    assert one.n_bytes > 60 * 60 * 4 * 3 and one.entries >= 4 * 60 * 60  # the check, W, and the blend
    churn = _gpu_counts.count_asked(60, "previous", churn=3)
    assert churn.launches > one.launches and churn.peak >= 4 * 60 * 60
