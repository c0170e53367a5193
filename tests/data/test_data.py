"""The packaged data sets: shapes, units by range, and a few values read off the files."""

import numpy as np

from pullback import data


def test_lynx_hare_is_one_row_a_year():
    pelts = data.load_lynx_hare()
    np.testing.assert_array_equal(pelts.year, np.arange(1900, 1921))
    assert all(column.shape == (21,) and column.dtype == np.float64 for column in pelts)
    assert (pelts.hare[0], pelts.lynx[0]) == (30.0, 4.0)
    assert (pelts.hare[-1], pelts.lynx[-1]) == (24.7, 8.6)


def test_lynx_peak_follows_hare_peak():
    pelts = data.load_lynx_hare()
    assert pelts.year[pelts.hare.argmax()] == 1903
    assert pelts.year[pelts.lynx.argmax()] == 1904


def test_theophylline_is_one_row_a_person():
    drug = data.load_theophylline()
    np.testing.assert_array_equal(drug.subject, np.arange(1, 13))
    assert drug.weight.shape == drug.dose.shape == (12,)
    assert drug.time.shape == drug.concentration.shape == (12, 11)
    assert (drug.weight[0], drug.dose[0]) == (79.6, 4.02)
    np.testing.assert_array_equal(drug.concentration[1, :4], [0.0, 1.72, 7.91, 8.31])


def test_theophylline_times_increase_and_start_at_the_dose():
    time = data.load_theophylline().time
    assert (time[:, 0] == 0).all()
    assert (np.diff(time, axis=1) > 0).all()
    # Samples were taken over one day, at times that differ between people.
    assert 23 < time[:, -1].min() < time[:, -1].max() < 26
    assert len(np.unique(time[:, 1])) > 1
