#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The figures that README, docs/ and benchmarks/results quote for a GPU, part by part; fails when a part fails.
#
#   scripts/gpu_figures.sh OUT PART... [-- KEY=VALUE...]
#   scripts/gpu_figures.sh runs/figures scene collect -- data=pack data.root=drive.pack
#
# scene     a run of STEPS steps (7000) with workers and OPTIONS; the parts after it start from its checkpoint, or from CHECKPOINT
# collect   interpolation alone and collecting, on the benchmark's workload and on the drive; the waits of a step; ranges
# timeline  nsys of the baseline, of the option workers, and of workers with OPTIONS, ten steps each with pictures, the first and the last
#           compared, and 500 steps of the last with relocation
# quality   whole runs of three seeds at downscale 2 against the baseline, JOBS (4) at once on GPUS (1) GPUs
# full      the gate's full length: runs of STEPS steps without options, with workers and OPTIONS, and with the backward options, too
# kernels   bench_render with the backward options one after another and gsplat; how far from float64 each is on the drive;
#           ncu of the backward kernels; frames and rays a second of several views at once
# sweep     launch bounds: every variant compiled, checked and timed on the drive, the simulated and the random scene; the camera's two rows on
#           the drive's image enlarged
# ladder    workers, OPTIONS and the backward options one after another, ROUNDS (3) of fresh processes
# steps     of all options: an image and a sweep, without the lidar, with an eighth of its rays, and those of the recipe realtime; the same with gsplat
# warp_tiles bench_render with warp_cull, tile_cull and balanced_tiles, gsplat, and how far from float64 they are on the drive
# options   every option alone and as a rung, and the PSNR of every one, JOBS at once
# chain     the rungs from the baseline to all, ROUNDS (3) times in one call each on one card, and ncu of one step of the baseline, of all options
#           but the renderer's, and of all (no graph, no streams: ncu cannot look into a graph)
# graph     nsys of all options, 500 steps with relocation after 400
# cameras   steps of six simulated cameras and a lidar of 128 beams, with one image and with all six
#
# KEY=VALUE are those of nurec_lite.train for every part: the drive above all. PYTHON=... chooses the interpreter. At the end
# scripts/reduce_results.py reduces all reports in OUT to the values that pages read.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
PYTHON="${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"
OPTIONS="${OPTIONS:-fused_interp,collect_once,no_sync}"
BACKWARD="split_backward,launch_bounds,shared_memory"
STEPS="${STEPS:-7000}"

[ $# -ge 2 ] || { sed -n '3,30s/^# \{0,1\}//p' "$0" >&2; exit 2; }
out=$1; shift
parts=() data=()
while [ $# -gt 0 ]; do
    case "$1" in
        --) shift; data=("$@"); break ;;
        scene | collect | timeline | quality | full | kernels | sweep | ladder | steps | warp_tiles | options | chain | graph | cameras) parts+=("$1"); shift ;;
        *) echo "error: '$1' is no part; take scene, collect, timeline, quality, full, kernels, sweep, ladder, steps, warp_tiles, options, chain, graph, cameras" >&2
            exit 2 ;;
    esac
done
mkdir -p "$out"
CHECKPOINT="${CHECKPOINT:-$out/scene/checkpoint.pt}"
large=(${data[@]+"${data[@]}"} +size=large train.seconds=null)
resumed=("${large[@]}" "train.resume=$CHECKPOINT" train.steps=20000) # in the middle of a run, with relocation

scene() {
    "$PYTHON" -m nurec_lite.train "${large[@]}" "train.steps=$STEPS" "+opt=[workers,$OPTIONS]" "out=$out/scene" train.overwrite=true train.timing=true
}

collect() {
    local status=0
    "$PYTHON" benchmarks/opt/bench_fused_interp.py --out "$out/interpolate.json" || status=1
    "$PYTHON" benchmarks/opt/bench_fused_interp.py --capture ${data[@]+"${data[@]}"} --out "$out/interpolate_drive.json" || status=1
    "$PYTHON" benchmarks/opt/bench_collect_once.py "${resumed[@]}" --out "$out/collect.json" || status=1
    "$PYTHON" benchmarks/opt/bench_collect_once.py "${large[@]}" train.steps=20000 --invented 1 --out "$out/collect_invented.json" || status=1
    "$PYTHON" benchmarks/opt/bench_no_sync.py "${resumed[@]}" "+opt=[workers]" --out "$out/no_sync.json" || status=1
    "$PYTHON" benchmarks/step/bench_ranges.py "${resumed[@]}" --out "$out/ranges.json" || status=1
    return $status
}

recorded() {
    "$PYTHON" -m nurec_lite.profile tool=nsys "${resumed[@]}" "out=$out/nsys_$1" "${@:2}"
}

timeline() {
    local status=0 with="+opt=[workers,$OPTIONS]"
    recorded baseline || status=1
    recorded workers "+opt=[workers]" || status=1
    recorded options "$with" || status=1
    recorded 500 "$with" warmup=60 steps=500 || status=1
    "$PYTHON" -m nurec_lite.profile compare "$out/nsys_baseline" "$out/nsys_options" | tee "$out/nsys_options/compare.md" || status=1
    return $status
}

quality() {
    "$PYTHON" benchmarks/ladder/quality_gate.py --opt "$OPTIONS" "$OPTIONS,$BACKWARD" --jobs "${JOBS:-4}" --gpus "${GPUS:-1}" --out "$out/quality" \
        ${data[@]+"${data[@]}"} data.downscale=2
}

whole() {
    "$PYTHON" -m nurec_lite.train "${large[@]}" "train.steps=$STEPS" "out=$out/full_$1" train.overwrite=true "${@:2}"
}

full() {
    local status=0
    whole baseline || status=1
    whole options "+opt=[workers,$OPTIONS]" || status=1
    whole all "+opt=[workers,$OPTIONS,$BACKWARD]" || status=1
    return $status
}

diagnosed() {
    "$PYTHON" benchmarks/render/diagnose_backward.py --train-steps 300 --out "$out/$1" "${@:2}" --checkpoint "$CHECKPOINT" \
        --capture ${data[@]+"${data[@]}"}
}

kernels() {
    local status=0 sets=('' split_backward split_backward,launch_bounds "$BACKWARD")
    "$PYTHON" benchmarks/render/bench_render.py --opt "${sets[@]}" --peer \
        --train-steps 300 --out "$out/render.json" --checkpoint "$CHECKPOINT" --capture ${data[@]+"${data[@]}"} || status=1
    "$PYTHON" benchmarks/render/bench_gradients.py --opt "${sets[@]}" --workloads captured \
        --out "$out/gradients.json" --checkpoint "$CHECKPOINT" --capture ${data[@]+"${data[@]}"} || status=1
    "$PYTHON" benchmarks/render/bench_views.py --peer --train-steps 300 --out "$out/views.json" \
        --checkpoint "$CHECKPOINT" --capture ${data[@]+"${data[@]}"} || status=1
    diagnosed diagnosis || status=1
    diagnosed diagnosis_split --opt split_backward --workloads captured || status=1
    diagnosed diagnosis_bounds --opt split_backward,launch_bounds --workloads captured || status=1
    diagnosed diagnosis_all --opt "$BACKWARD" || status=1
    "$PYTHON" benchmarks/render/compare_diagnoses.py "$out"/diagnosis{,_all}/diagnosis.json --out "$out/backward.png" || status=1
    return $status
}

swept() {
    "$PYTHON" benchmarks/opt/bench_launch_bounds.py --out "$out/sweep/$1" "${@:2}" --checkpoint "$CHECKPOINT" --capture ${data[@]+"${data[@]}"}
}

sweep() {
    local status=0 times
    swept all --workloads captured simulated random --train-steps 300 --rounds 12 \
        --threads 64 128 256 --resident 512 768 1024 1152 --rays 1 2 --rows 128 256 --ahead 1 4 8 16 || status=1
    for times in 0.7 1.2 1.5 2 3; do
        swept "enlarged_$times" --workloads captured --sensors camera --enlarge "$times" --rounds 15 \
            --threads 128 256 --resident 768 1024 --rays 1 2 --rows 256 --ahead 1 4 || status=1
    done
    return $status
}

ladder() {
    local rungs
    IFS=, read -ra rungs <<<",workers,$OPTIONS,$BACKWARD" # the first is the baseline
    "$PYTHON" benchmarks/ladder/ladder.py --rungs "${rungs[@]}" --cumulative --repeat "${ROUNDS:-3}" --warmup 30 --steps 100 \
        --out "$out/ladder" "${resumed[@]}"
}

stepped() { # NAME, then arguments of nurec_lite.train
    "$PYTHON" benchmarks/step/bench_step.py "${@:2}" +opt=all --steps 200 --warmup 110 --profiled 8 --out "$out/step_$1.json"
}

steps() {
    local status=0 recipe=(${data[@]+"${data[@]}"} +recipe=realtime data.split=validation)
    stepped all "${resumed[@]}" || status=1
    stepped without_lidar "${resumed[@]}" train.lidar_rays=0 || status=1
    stepped eighth "${resumed[@]}" train.lidar_rays=16384 || status=1
    "$PYTHON" -m nurec_lite.train "${recipe[@]}" +opt=all "out=$out/realtime" train.overwrite=true || status=1
    recipe+=("train.resume=$out/realtime/checkpoint.pt" train.steps=20000)
    stepped realtime "${recipe[@]}" train.lidar_every=1 || status=1
    stepped recipes "${recipe[@]}" || status=1
    "$PYTHON" benchmarks/step/bench_beside.py "${resumed[@]}" --out "$out/beside.json" || status=1
    return $status
}

warp_tiles() {
    local status=0 set=warp_cull,tile_cull,balanced_tiles
    "$PYTHON" benchmarks/render/bench_render.py --opt '' "$set" --peer --tolerance 1 --workloads captured simulated \
        --train-steps 300 --out "$out/render_warp_tiles.json" --checkpoint "$CHECKPOINT" --capture ${data[@]+"${data[@]}"} || status=1
    "$PYTHON" benchmarks/render/bench_gradients.py --opt "$set" --workloads captured \
        --out "$out/gradients_warp_tiles.json" --checkpoint "$CHECKPOINT" --capture ${data[@]+"${data[@]}"} || status=1
    return $status
}

options() {
    local status=0
    "$PYTHON" benchmarks/ladder/bench_options.py "${resumed[@]}" --steps 40 --warmup 30 --profiled 2 --out "$out/options.json" \
        --others pinned prefetch split_backward launch_bounds shared_memory amp batch compile || status=1
    "$PYTHON" benchmarks/ladder/option_quality.py --steps 400 --jobs "${JOBS:-4}" --gpus "${GPUS:-1}" --out "$out/option_quality.json" \
        ${data[@]+"${data[@]}"} data.downscale=2 || status=1
    return $status
}

chain() {
    local status=0 feed=resident,fused_interp,collect_once,no_sync,morton_order renderer=warp_cull,tile_cull,balanced_tiles
    local fused=fused_adam,fused_ssim,fused_sky,fused_colour,fused_activate,fused_range,fused_harmonics round
    for round in $(seq "${ROUNDS:-3}"); do
        "$PYTHON" benchmarks/ladder/bench_options.py "${resumed[@]}" --steps 100 --warmup 40 --profiled 2 --rungs --out "$out/chain_$round.json" || status=1
    done
    measured_by_ncu baseline || status=1
    measured_by_ncu before_renderer "+opt=[$feed,split_backward,launch_bounds,$fused]" || status=1
    measured_by_ncu all "+opt=[$feed,$renderer,short_keys,$fused,fused_project]" || status=1
    return $status
}

measured_by_ncu() {
    "$PYTHON" -m nurec_lite.profile tool=ncu "${resumed[@]}" warmup=5 steps=1 launches=2000 "out=$out/ncu_$1" "${@:2}"
}

graph() {
    recorded graph +opt=all warmup=400 steps=500
}

cameras() {
    local status=0 six=(data=pack "data.root=$out/six.pack" +size=large train.seconds=null train.steps=20000 density.growth=2)
    "$PYTHON" -m nurec_lite.capture.simulate --out "$out/six.pack" --frames "${FRAMES:-12}" --cameras 6 --width 1920 --height 1080 --beams 128 \
        --azimuth-steps 1800 --moving-cars 9 --parked-cars 20 --image-format jpeg || return 1
    "$PYTHON" benchmarks/step/bench_step.py "${six[@]}" +opt=all --steps 200 --warmup 300 --profiled 3 --out "$out/six_1.json" || status=1
    "$PYTHON" benchmarks/step/bench_step.py "${six[@]}" '+opt=[all,batch]' opt.batch.images=6 --steps 200 --warmup 300 --profiled 3 \
        --out "$out/six_6.json" || status=1
    return $status
}

status=0
for part in "${parts[@]}"; do
    echo "== $part"
    "$part" || { echo "== $part failed"; status=1; }
done
"$PYTHON" scripts/reduce_results.py "$out" || status=1
exit $status
