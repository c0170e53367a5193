"""How snapshots lie on disk.

Contents: `leaves_on_disk` (pytrees as rows of numbers and back), `row_file` (what a file of rows
promises), `npy_file` and `hdf5_file` (the two kinds), `shelf` (all rows of one layout), `codecs`
and `checksum` (optional packages, through `optional`), `writer` (the thread), `lock` (one user per
folder).
"""
