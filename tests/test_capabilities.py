"""The page of capabilities agrees with the calls, on the installed libraries."""

import capabilities
import pytest

pytestmark = pytest.mark.skipif(not capabilities.PAGE.exists(), reason="not a clone of the repository")


CASES = [(r, xp) for r in capabilities.REPRESENTATIONS for xp in capabilities.installed(r)]


@pytest.mark.parametrize("representation, library", CASES, ids=[f"{r}-{xp.name}" for r, xp in CASES])
def test_the_page_agrees(representation, library):
    """If it does not, run PYTHONPATH=. python tests/capabilities.py."""
    if representation == "Chunked":
        pytest.importorskip("dask.array")
    cells = capabilities.page_cells(capabilities.PAGE.read_text("utf-8"))
    shown = {
        name: cell for (r, name, lib), cell in cells.items() if (r, lib) == (representation, library.name)
    }
    assert shown == {name: capabilities.found(library, representation, name) for name in capabilities.CALLS}


def test_a_call_that_goes_to_the_host_is_noticed():
    strict = next((b for b in capabilities.BACKENDS if b.name == "strict"), None)
    if strict is None:
        pytest.skip("needs array-api-strict")
    with capabilities.moved_to_host() as sizes:
        capabilities.namespace.to_host(strict.array([[1.0, 2.0]]), reason="a test")
    assert sizes == [2]
