"""The page of capabilities says what the calls do, on the libraries that are installed."""

import capabilities
import pytest

pytestmark = pytest.mark.skipif(not capabilities.PAGE.exists(), reason="not a clone of the repository")


@pytest.mark.parametrize("representation", capabilities.REPRESENTATIONS)
def test_the_page_agrees(representation):
    """If it does not: PYTHONPATH=. python tests/capabilities.py"""
    if representation == "Chunked":
        pytest.importorskip("dask.array")
    cells = capabilities.page_cells(capabilities.PAGE.read_text("utf-8"))
    told = {key[1:]: value for key, value in cells.items() if key[0] == representation}
    found = capabilities.table(representation)
    assert {key: told.get(key) for key in found} == found
    assert {name for name, _ in told} == set(capabilities.CALLS)


def test_a_call_that_goes_to_the_host_is_noticed():
    strict = next((b for b in capabilities.BACKENDS if b.name == "strict"), None)
    if strict is None:
        pytest.skip("needs array-api-strict")
    with capabilities.moved_to_host() as sizes:
        capabilities.namespace.to_host(strict.array([[1.0, 2.0]]), reason="a test")
    assert sizes == [2]
