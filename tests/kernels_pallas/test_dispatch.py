"""The choice between kernels and references, and its record."""

import pytest

from kernels_pallas import dispatch


def _raise():
    raise NotImplementedError("no such tile")


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    monkeypatch.delenv(dispatch.VARIABLE, raising=False)
    dispatch.forget_fallbacks()
    yield
    dispatch.forget_fallbacks()


def test_a_cpu_uses_references():
    assert not dispatch.use_pallas()
    assert dispatch.interpret()
    assert not dispatch.is_rocm()
    assert dispatch.call("op", _raise, lambda: 1) == 1
    assert dispatch.fallbacks() == ()


def test_overrides_nest_and_win_over_the_environment(monkeypatch):
    monkeypatch.setenv(dispatch.VARIABLE, "pallas")
    assert dispatch.use_pallas()
    with dispatch.override(pallas=False):
        assert not dispatch.use_pallas()
        with dispatch.override(pallas=True):
            assert dispatch.use_pallas()
        assert not dispatch.use_pallas()
    monkeypatch.setenv(dispatch.VARIABLE, "reference")
    assert not dispatch.use_pallas()
    monkeypatch.setenv(dispatch.VARIABLE, "mosaic")
    with pytest.raises(ValueError, match=r"mosaic.*pallas, reference, auto"):
        dispatch.use_pallas()


def test_a_fallback_is_recorded_once():
    with dispatch.override(pallas=True):
        assert [dispatch.call("op", _raise, lambda: 1) for _ in range(3)] == [1, 1, 1]
        assert dispatch.call("op", lambda: 2, lambda: 1) == 2
    assert dispatch.fallbacks() == (dispatch.Fallback(operation="op", reason="no such tile"),)
