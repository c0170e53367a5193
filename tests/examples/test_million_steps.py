"""A loop that is killed half-way back; here it is shorter."""

import jax
import numpy as np

N_STEPS, N_SNAPSHOTS = 12_800, 40


def test_killed_once_and_resumed(example, tmp_path, capsys, monkeypatch):
    # Both processes compile alike, whatever other tests have set in this one.
    setting = "jax_disable_most_optimizations"
    monkeypatch.setenv(setting.upper(), str(int(jax.config.read(setting))))
    module = example("million_steps")
    result = module.main(N_STEPS, N_SNAPSHOTS, progress=False)
    # Both derivatives pass N_STEPS steps that do not amplify; each adds a few rounding errors.
    assert result.dot_product_error < 1e-12
    assert "killed after" in capsys.readouterr().out
    with jax.enable_x64(True):
        value, (by_state, by_forcing) = module.differentiate(tmp_path, N_STEPS, N_SNAPSHOTS)
    assert float(value) == result.energy
    np.testing.assert_array_equal(by_state, result.by_state)
    np.testing.assert_array_equal(by_forcing, result.by_forcing)
