# SPDX-License-Identifier: Apache-2.0
"""The operator move_actors against interpolate and collect_gaussian_parameters in double precision."""

import pytest
import torch
from emulation import EMULATED
from operators import check_schema
from parity import DEVICES, relative
from torch import Tensor
from torch.nn import functional as F

from nurec_lite.geometry.tracks import Tracks, interpolate
from nurec_lite.native import ops
from nurec_lite.scene.collect import collect_gaussian_parameters
from nurec_lite.scene.gaussians import Gaussians
from nurec_lite.scene.scene import Scene

F64 = torch.float64
NAMES = ("means", "quats", "velocities", "rotations")
LEAVES = ("means", "quats", "translations", "quaternions")
TOLERANCE = 1e-5  # relative, in the Euclidean norm
HALF_TURNS = torch.cat([torch.eye(4), -torch.eye(4)])  # of one another, or the same
QUERIES = (0.31,), (0.0, 0.31, 0.72), (0.1, 0.2, 0.31, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0)  # seconds
CASES = {  # Gaussians and keyframes of each track
    "no tracks": ((), ()),
    "no Gaussians": ((0, 0), (3, 4)),
    "one Gaussian": ((1,), (2,)),
    "one keyframe": ((33, 5), (1, 6)),
    "an empty track": ((0, 31, 0, 257, 0), (3, 9, 1, 40, 2)),
    "of very different sizes": ((1, 5000, 1, 2, 256), (4, 300, 2, 33, 7)),
    "many tracks and keyframes": (600 * (1,), (1300, *(599 * (2,)))),  # more than a warp looks at at once
}
Inputs = dict[str, Tensor]  # by the names of the operator's schema


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    ops.load()
    monkeypatch.setenv("NUREC_LITE_CHECK", "1")  # CUDA looks at numbers only then


def offsets(counts: tuple[int, ...]) -> Tensor:
    return F.pad(torch.tensor(counts, dtype=torch.int64).cumsum(0), (1, 0))


def make_inputs(rows: tuple[int, ...], keys: tuple[int, ...], times: tuple[float, ...], device: str) -> Inputs:
    """Objects that move by decimetres and turn by tenths of radians from key to key; quaternions of either sign and any length."""
    a, m = sum(rows), sum(keys)
    quats, sign = torch.randn(4) + 0.1 * torch.randn(m, 4), torch.randint(0, 2, (m, 1)) * 2 - 1
    key_times = [0.1 + torch.cumsum(0.05 + 0.1 * torch.rand(n, dtype=F64), dim=0) for n in keys]
    found = {
        "means": torch.randn(a, 3),
        "quats": F.normalize(torch.randn(a, 4), dim=-1),
        "starts": offsets(rows),
        "key_offsets": offsets(keys),
        "key_times": torch.cat(key_times) if keys else torch.zeros(0, dtype=F64),
        "translations": 10 + torch.randn(m, 3),
        "quaternions": quats * sign * (0.5 + torch.rand(m, 1)),
        "times": torch.tensor(times, dtype=F64),
    }
    return {name: value.to(device) for name, value in found.items()}


def moved(args: Inputs) -> list[Tensor]:
    return list(torch.ops.nurec_lite.move_actors(list(args.values())))


def scene_of(args: Inputs) -> Scene:
    """All Gaussians belong to tracks, and these exist at all times."""
    k, n = len(args["starts"]) - 1, len(args["means"])
    node = 1 + torch.repeat_interleave(torch.arange(k), args["starts"].diff())
    scales, logits, sh, rest, lidar = (torch.zeros(n, *s, dtype=F64) for s in ((3,), (), (1, 3), (0, 3), (2,)))
    g = Gaussians(args["means"], args["quats"], scales, logits, sh, rest, lidar, node)
    keys = args["translations"], args["quaternions"]
    rows, sizes, names = tuple(args["key_offsets"].tolist()), torch.ones(k, 3), ("",) * k
    tracks = Tracks(names, names, sizes, rows, args["key_times"], *keys, margin=1e9)
    return Scene(g, torch.zeros(3, 1, 1), tracks, *keys, torch.zeros(1))


def reference(args: Inputs) -> list[Tensor]:
    """The functions that specify the operator, one query after another."""
    scene = scene_of(args)
    world = [collect_gaussian_parameters(scene, float(time)) for time in args["times"]]
    poses = interpolate(scene.learned_tracks(), args["times"])
    return [*(torch.stack([getattr(w, name) for w in world]) for name in NAMES[:3]), poses.quaternions]


def in_double(args: Inputs) -> Inputs:
    return {name: (v.double() if v.is_floating_point() else v).cpu() for name, v in args.items()}


def activated(args: Inputs) -> Inputs:
    """Quaternions that are unit after any step."""
    return args | {"quats": F.normalize(args["quats"], dim=-1)}


def gradients(args: Inputs, slopes: list[Tensor], op: bool) -> dict[str, Tensor]:
    args = args | {name: args[name].detach().clone().requires_grad_() for name in LEAVES}
    out = moved(activated(args)) if op else reference(args)
    loss = torch.stack([(value * slope).sum() for value, slope in zip(out, slopes, strict=True)]).sum()
    found = torch.autograd.grad(loss, [args[name] for name in LEAVES], allow_unused=True, materialize_grads=True)
    return dict(zip(LEAVES, found, strict=True))


def slopes_of(args: Inputs) -> list[Tensor]:
    return [torch.randn_like(value) for value in moved(args)]


def agrees(args: Inputs) -> None:
    slopes = slopes_of(args)
    for name, a, b in zip(NAMES, moved(args), reference(in_double(args)), strict=True):
        assert relative(a.cpu(), b) <= TOLERANCE, name
    gradients_agree(args, slopes)


def gradients_agree(args: Inputs, slopes: list[Tensor]) -> None:
    found = gradients(args, slopes, op=True)
    expected = gradients(in_double(args), [slope.double().cpu() for slope in slopes], op=False)
    for name in LEAVES:
        assert relative(found[name].cpu(), expected[name]) <= TOLERANCE, name


# ---- parity


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", QUERIES, ids=("Q=1", "Q=3", "Q=11"))
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str, times: tuple[float, ...], device: str) -> None:
    agrees(make_inputs(*CASES[case], times, device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", QUERIES[1:], ids=("Q=3", "Q=11"))
def test_several_rows_a_thread(times: tuple[float, ...], device: str) -> None:
    """More than 512 blocks of 256 rows, of two tracks with one between them that is nearly empty."""
    agrees(make_inputs((60_000, 3, 90_000), (5, 2, 40), times, device))


@pytest.mark.parametrize("device", DEVICES)
def test_before_between_on_and_after_keyframes(device: str) -> None:
    args = make_inputs((40, 50), (5, 1), (), device)
    keys = args["key_times"].cpu()
    times = torch.cat([keys, keys[:4] + 0.3 * keys[:5].diff(), keys.min()[None] - 1, keys.max()[None] + 1])
    agrees(args | {"times": times.to(device)})


@pytest.mark.parametrize("device", DEVICES)
def test_no_velocity_where_the_pose_is_clamped(device: str) -> None:
    args = make_inputs((40, 50), (5, 1), (-1.0, 5.0), device)
    assert not moved(args)[2].any()


@pytest.mark.parametrize("device", DEVICES)
def test_equal_poses_and_opposite_quaternions_stand_still(device: str) -> None:
    args = make_inputs((40,), (4,), (0.2, 0.3), device)
    args["translations"][:] = args["translations"][0].clone()
    args["quaternions"][:] = args["quaternions"][0].clone() * torch.tensor([[1.0], [-1], [2], [-2]], device=device)
    assert float(moved(args)[2].abs().max()) < 1e-4  # by rounding, divided by the time between keyframes
    found, expected = moved(args), reference(in_double(args))
    for k in (0, 1, 3):
        assert relative(found[k].cpu(), expected[k]) <= TOLERANCE
    gradients_agree(args, slopes_of(args))


@pytest.mark.parametrize("device", DEVICES)
def test_half_turns(device: str) -> None:
    """The shorter arc is not defined; operator and reference choose the same one."""
    args = make_inputs((20,), (8,), (), device) | {"quaternions": HALF_TURNS.to(device)}
    keys = args["key_times"]
    agrees(args | {"times": keys[:-1] + 0.25 * keys.diff()})


@pytest.mark.parametrize("device", DEVICES)
def test_a_hand_computed_case(device: str) -> None:
    """From the origin, unturned, to (2, 0, 0), turned by 90 degrees about z, in 0.5 s; half-way the arm (1, 0, 0) lies at 45 degrees."""
    rows = {"means": [[1.0, 0, 0]], "quats": [[1.0, 0, 0, 0]], "translations": [[0.0, 0, 0], [2, 0, 0]]}
    rows["quaternions"] = [[1.0, 0, 0, 0], [0.5, 0, 0, 0.5]]
    args = make_inputs((1,), (2,), (1.25,), device) | {k: torch.tensor(v, device=device) for k, v in rows.items()}
    args["key_times"] = torch.tensor([1.0, 1.5], dtype=F64, device=device)
    h, pi = 0.5**0.5, torch.pi
    turn = [0.9238795, 0, 0, 0.3826834]  # cos and sin of 22.5 degrees
    expected = [[1 + h, h, 0]], [turn], [[4 - pi * h, pi * h, 0]], [turn]  # 2 m and pi / 2 radians in half a second
    for value, numbers in zip(moved(args), expected, strict=True):
        torch.testing.assert_close(value[0].cpu(), torch.tensor(numbers), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", QUERIES, ids=("Q=1", "Q=3", "Q=11"))
@pytest.mark.parametrize("keys", [(0, 4, 0, 2), (0, 0, 0, 0)], ids=str)
def test_a_track_without_keyframes_stands_at_the_origin(
    keys: tuple[int, ...], times: tuple[float, ...], device: str
) -> None:
    """A track with a keyframe there does the same."""
    rows, args = (300, 33, 0, 5), make_inputs((300, 33, 0, 5), keys, times, device)
    own = torch.repeat_interleave(torch.tensor(keys) > 0, torch.tensor([max(n, 1) for n in keys])).to(device)
    placed = make_inputs(rows, tuple(max(n, 1) for n in keys), times, device) | {k: args[k] for k in ("means", "quats")}
    placed["translations"][~own], placed["quaternions"][~own] = 0, torch.tensor([1.0, 0, 0, 0], device=device)
    for name in ("key_times", "translations", "quaternions"):
        placed[name][own] = args[name]
    for a, b in zip(moved(args), moved(placed), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    slopes = slopes_of(args)
    found, expected = gradients(args, slopes, op=True), gradients(placed, slopes, op=True)
    for name in LEAVES:
        of_keys = name in ("translations", "quaternions")
        torch.testing.assert_close(
            found[name], expected[name][own] if of_keys else expected[name], rtol=1e-5, atol=1e-5
        )


# ---- as an operator


@pytest.mark.parametrize("device", DEVICES)
def test_bitwise_the_same_in_every_run(device: str) -> None:
    args = make_inputs(*CASES["of very different sizes"], QUERIES[1], device)
    slopes = slopes_of(args)
    first, second = (gradients(args, slopes, op=True) for _ in range(2))
    assert all(a.equal(b) for a, b in zip(moved(args), moved(args), strict=True))
    assert all(first[name].equal(second[name]) for name in LEAVES)


def test_bitwise_the_same_with_any_number_of_threads() -> None:
    args = make_inputs(*CASES["of very different sizes"], QUERIES[1], "cpu")
    slopes, threads = slopes_of(args), torch.get_num_threads()
    first = gradients(args, slopes, op=True)
    try:
        torch.set_num_threads(3)
        second = gradients(args, slopes, op=True)
    finally:
        torch.set_num_threads(threads)
    assert all(first[name].equal(second[name]) for name in LEAVES)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["no tracks", "no Gaussians", "an empty track"])
def test_torch_s_own_checks(case: str, device: str) -> None:
    """The operator changes exactly the tensors of its schema, and its gradient is registered."""
    args = make_inputs(*CASES[case], QUERIES[1], device)
    slopes = slopes_of(args)
    check_schema(torch.ops.nurec_lite.move_actors_backward.default, (list(args.values()), slopes))
    args |= {name: args[name].requires_grad_() for name in LEAVES}
    check_schema(torch.ops.nurec_lite.move_actors.default, (list(args.values()),))


@pytest.mark.parametrize("device", DEVICES)
def test_one_result_of_one_query_alone(device: str) -> None:
    """Gradients of the other results are zeros, and arrive with strides or without memory of their own."""
    args = make_inputs((33,), (5,), QUERIES[1], device)
    for k in range(4):
        slopes = [torch.zeros_like(value) for value in moved(args)]
        slopes[k][1] = 1
        name = "translations" if k in (0, 2) else "quaternions"
        leaf = args[name].clone().requires_grad_()
        (found,) = torch.autograd.grad(moved(activated(args) | {name: leaf})[k][1].sum(), leaf)
        assert found.equal(gradients(args, slopes, op=True)[name])


def test_no_second_derivative() -> None:
    args = make_inputs((33,), (5,), QUERIES[1], "cpu")
    leaf = args["means"].requires_grad_()
    (first,) = torch.autograd.grad(moved(args)[0].square().sum(), leaf, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


@pytest.mark.parametrize("device", DEVICES)
def test_no_query(device: str) -> None:
    args = make_inputs((33,), (5,), (), device)
    assert [tuple(v.shape) for v in moved(args)] == [(0, 33, 3), (0, 33, 4), (0, 33, 3), (0, 1, 4)]
    assert not any(g.any() for g in gradients(args, slopes_of(args), op=True).values())


def rising(*values: float) -> Tensor:
    return torch.tensor(values, dtype=F64)


@pytest.mark.parametrize(
    ("wrong", "error", "sentence"),
    [
        ({"quats": torch.zeros(6, 4)}, ValueError, "quats has shape"),
        ({"means": torch.zeros(7, 3).double()}, TypeError, "means is Double, but must be Float"),
        ({"means": torch.zeros(3, 7).T}, ValueError, "means is not contiguous"),
        ({"means": torch.full((7, 3), torch.nan)}, ValueError, "means holds nan in row 0, but must be finite"),
        ({"starts": torch.tensor([0, 7, 7])}, ValueError, "key_offsets has shape"),
        ({"starts": torch.zeros(0, dtype=torch.int64)}, ValueError, "starts is empty"),
        ({"starts": torch.tensor([0, 6])}, ValueError, "starts goes from 0 to 6, but must go from 0 to 7"),
        ({"key_offsets": torch.tensor([1, 3])}, ValueError, "key_offsets goes from 1 to 3"),
        ({"key_times": rising(1, 2, 2)}, ValueError, "key_times of track 0 do not rise in row 2"),
        ({"key_times": rising(1, 2, torch.inf)}, ValueError, "key_times holds inf in row 2"),
        ({"key_times": torch.zeros(3)}, TypeError, "key_times is Float, but must be Double"),
        ({"translations": torch.zeros(2, 3)}, ValueError, "translations has shape"),
        ({"quaternions": torch.full((3, 4), torch.inf)}, ValueError, "quaternions holds inf"),
        ({"times": rising(torch.nan)}, ValueError, "times holds nan"),
    ],
)
@pytest.mark.parametrize("device", DEVICES)
def test_what_does_not_fit_is_refused(wrong: Inputs, error: type[Exception], sentence: str, device: str) -> None:
    args = make_inputs((7,), (3,), (0.2,), device)
    with pytest.raises(error, match=sentence):
        moved(args | {name: value.to(device) for name, value in wrong.items()})


def shifted(value: Tensor) -> Tensor:
    """The same numbers, four bytes beside a multiple of 16."""
    return torch.cat([value.new_zeros(1), value.flatten()])[1:].view_as(value)


@pytest.mark.parametrize("device", ["cpu"] if EMULATED else [pytest.param("cuda", marks=pytest.mark.gpu)])
def test_rows_that_cannot_be_loaded_as_vectors(device: str) -> None:
    """Parameters are refused; gradients, which autograd may have cut out of larger ones, are copied."""
    args = make_inputs((33,), (5,), QUERIES[1], device)
    for name in ("quats", "quaternions"):
        with pytest.raises(ValueError, match=f"{name} does not start on a multiple of 16 bytes"):
            moved(args | {name: shifted(args[name])})
    backward, slopes = torch.ops.nurec_lite.move_actors_backward, slopes_of(args)
    found = backward(list(args.values()), [shifted(slope) for slope in slopes])
    for a, b in zip(found, backward(list(args.values()), slopes), strict=True):
        assert a.equal(b)


def test_rows_of_no_track_are_refused() -> None:
    args = make_inputs((3, 4), (2, 1), (0.2,), "cpu")
    with pytest.raises(ValueError, match="key_offsets gives track 1 -1 rows, but it must have at least 0"):
        moved(args | {"key_offsets": torch.tensor([0, 4, 3])})
    with pytest.raises(ValueError, match="starts gives track 1 -1 rows"):
        moved(args | {"starts": torch.tensor([0, 8, 7])})
    none = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(ValueError, match="there are 7 Gaussians and 3 keyframes of no track"):
        moved(args | {"starts": none, "key_offsets": none})
