# SPDX-License-Identifier: Apache-2.0
"""Single rotations and poses in Python's floats: the same formulas as in se3.py.

A torch operator costs some microseconds on however few numbers, and a view's poses would take hundreds; these take a tenth of that
all together. Infinite values become NaN, as in torch.
"""

import math

Vector = tuple[float, float, float]
Quaternion = tuple[float, float, float, float]  # wxyz
Rows = list[list[float]]  # of a matrix

_SMALL = 1e-8  # squared angle; below, the series are exact to rounding


def matrix_to_quat(
    R: Rows,  # [3, 3], or more of a pose
) -> Quaternion:  # unit, w >= 0
    (m00, m01, m02), (m10, m11, m12), (m20, m21, m22) = (row[:3] for row in R[:3])
    squares = (1 + m00 + m11 + m22, 1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22)
    a, b, c, d, e, f = m21 - m12, m02 - m20, m10 - m01, m10 + m01, m02 + m20, m12 + m21
    table = ((squares[0], a, b, c), (a, squares[1], d, e), (b, d, squares[2], f), (c, e, f, squares[3]))
    w, x, y, z = table[squares.index(max(squares))]
    length = max(math.sqrt(w * w + x * x + y * y + z * z), 1e-12)
    length = -length if w < 0 else length
    return w / length, x / length, y / length, z / length


def quat_multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return (
        aw * bw - (ax * bx + ay * by + az * bz),
        aw * bx + bw * ax + (ay * bz - az * by),
        aw * by + bw * ay + (az * bx - ax * bz),
        aw * bz + bw * az + (ax * by - ay * bx),
    )


def rotvec_to_quat(v: Vector) -> Quaternion:
    x, y, z = v
    a2 = x * x + y * y + z * z
    if a2 < _SMALL:
        return 1 - a2 / 8, (0.5 - a2 / 48) * x, (0.5 - a2 / 48) * y, (0.5 - a2 / 48) * z
    a = math.sqrt(a2)
    sinc = math.sin(a / 2) / a
    return math.cos(a / 2), sinc * x, sinc * y, sinc * z


def quat_to_rotvec(q: Quaternion) -> Vector:
    w, x, y, z = (-q[0], -q[1], -q[2], -q[3]) if q[0] < 0 else q
    s2 = x * x + y * y + z * z
    s = math.sqrt(s2)
    factor = (2 - s2 * (2 / 3)) / w if s2 < _SMALL else 2 * math.atan2(s, w) / s
    return factor * x, factor * y, factor * z


def turn_between(q0: Quaternion, q1: Quaternion) -> Vector:
    """Rotation vector from q0 to q1 in the frame of q0, along the shorter arc: q1 = q0 exp(turn)."""
    w, x, y, z = q0
    return quat_to_rotvec(quat_multiply((w, -x, -y, -z), q1))


def forward_axis(q: Quaternion) -> Vector:
    """The third column of R(q)."""
    w, x, y, z = q
    return 2 * (x * z + w * y), 2 * (y * z - w * x), 1 - 2 * (x * x + y * y)


def transposed_times(R: Rows, v: Vector) -> Vector:
    """R^T v of the first three rows and columns."""
    (a, b, c), (x, y, z) = R[:3], v
    return a[0] * x + b[0] * y + c[0] * z, a[1] * x + b[1] * y + c[1] * z, a[2] * x + b[2] * y + c[2] * z


def position(T: Rows) -> Vector:
    """Translation of a pose."""
    return T[0][3], T[1][3], T[2][3]


def minus(a: Vector, b: Vector) -> Vector:
    return a[0] - b[0], a[1] - b[1], a[2] - b[2]
