"""`assert_close`: what passes, and what the message says of what does not."""

import jax.numpy as jnp
import numpy as np
import pytest

from pullback.testing import assert_close


def fails(actual, desired, rtol=0.0, atol=0.0, err_msg=""):
    with pytest.raises(AssertionError) as caught:
        assert_close(actual, desired, rtol=rtol, atol=atol, err_msg=err_msg)
    return str(caught.value)


def test_equal_trees_of_any_kind_pass():
    tree = {"y": jnp.arange(3.0), "status": np.int32(0), "nested": (1.5, [True])}
    assert_close(tree, tree, rtol=0.0, atol=0.0)


def test_both_tolerances_widen():
    assert_close([1.0, 100.0], [1.0 + 1e-7, 100.0 + 1e-5], rtol=2e-7, atol=0.0)
    assert_close(1e-9, 0.0, rtol=0.0, atol=1e-8)


def test_nan_and_infinity_equal_themselves_only():
    values = np.array([np.nan, np.inf, -np.inf])
    assert_close(values, values, rtol=0.0, atol=0.0)
    assert "2 of 3 elements" in fails(values, np.array([np.nan, -np.inf, 1.0]), rtol=1.0, atol=1.0)
    assert "worst at (0,)" in fails(np.array([np.nan]), np.array([1.0]), rtol=1.0, atol=1.0)


def test_tolerances_have_no_default():
    with pytest.raises(TypeError, match=r"missing 2 required keyword-only arguments"):
        assert_close(1.0, 1.0)


def test_message_has_place_values_and_size_of_the_error():
    desired = {"y": np.ones((2, 3)), "z": 0.0}
    actual = {"y": np.ones((2, 3)), "z": 0.0}
    actual["y"][1, 2] = 1.5
    message = fails(actual, desired, atol=0.1, err_msg="final state")
    assert message.startswith("final state: not close (rtol=0, atol=0.1):")
    assert "['y']: 1 of 6 elements; worst at (1, 2): actual 1.5, desired 1.0" in message
    assert "error 5 x tolerance; largest absolute error 0.5, relative 0.5" in message
    assert "['z']" not in message


def test_worst_element_is_counted_in_tolerances():
    # The larger absolute error is the smaller one against a relative tolerance.
    assert "worst at (1,)" in fails(np.array([1000.0, 1.0]), np.array([1001.0, 1.1]), rtol=1e-6)


def test_shapes_are_not_broadcast():
    assert "shapes differ: actual (3,), desired ()" in fails(np.ones(3), np.float64(1.0), atol=9.0)


def test_structures_must_agree():
    assert "structures differ" in fails({"a": 1.0}, {"b": 1.0}, atol=9.0)


def test_dtypes_may_differ():
    assert_close(np.float32(0.5), np.float64(0.5), rtol=0.0, atol=0.0)
    assert_close(np.array([1 + 2j]), np.array([1 + 2j + 1e-9]), rtol=1e-8, atol=0.0)


def test_empty_arrays_are_close():
    assert_close(np.zeros((0, 3)), np.zeros((0, 3)), rtol=0.0, atol=0.0)
