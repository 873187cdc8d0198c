"""Layers that are nearly dense are computed by numpy's BLAS, which the library calls back."""

from __future__ import annotations

import ctypes

import numpy as np

_FLOATS = ctypes.POINTER(ctypes.c_float)
_SIZE = ctypes.c_int64


def _multiply(m: int, n: int, k: int, a: object, lda: int, b: object, ldb: int, beta: float, c: object, ldc: int) -> None:
    """Compute C = A B + beta C for row-major matrices with distances lda, ldb and ldc between rows."""
    product = _matrix(c, m, n, ldc)
    if beta:
        product += _matrix(a, m, k, lda) @ _matrix(b, k, n, ldb)
    else:
        np.matmul(_matrix(a, m, k, lda), _matrix(b, k, n, ldb), out=product)


def _matrix(pointer: object, rows: int, columns: int, distance: int) -> np.ndarray:
    length = (rows - 1) * distance + columns
    numbers = np.ctypeslib.as_array(pointer, (length,))
    return np.lib.stride_tricks.as_strided(numbers, (rows, columns), (4 * distance, 4))


_Gemm = ctypes.CFUNCTYPE(None, _SIZE, _SIZE, _SIZE, _FLOATS, _SIZE, _FLOATS, _SIZE, ctypes.c_float, _FLOATS, _SIZE)
gemm = _Gemm(_multiply)  # as the library calls it
