"""Gradients of loops that may outlive the process: every block leaves a trace on disk.

Contents: `restartable` (the public function), `follow` (a schedule from where an earlier process
stopped), `loop_functions` (what is compiled), `snapshots` (some may be lost), `two_rows` (the
newest state, safe against being killed while it is written), `manifest` (whether a folder belongs
to this loop), `adjoint_fields` and `progress_bar`.
"""
