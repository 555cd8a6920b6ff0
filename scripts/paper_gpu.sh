#!/usr/bin/env bash
# Run parts of the paper's experiments side by side on one GPU, and add them to the committed results.
#
#   bash scripts/paper_gpu.sh DATA OUT SECONDS STEP...
#
# DATA: folder with md17/ (rmd17/ for pair-rmd17, gfn2/ for DNA). OUT: folder for results; run the same command
# again to continue. SECONDS: time for the training. A step is an experiment and its part, as in the tables
# "Left to run" of docs/experiments. Then copy OUT/*.json to results/ and run python -m geomatt.reproduce.docs.
# DEVICE=cpu EXTRA=--quick tries it out on a processor. MOLECULES="benzene uracil" chooses those of steps that
# have one process for each molecule.
#
# Steps and their minutes on an H200, each alone, estimated from the times in the committed results:
#   table1-weighting   8    table2-untrained  5    dna-paper        45    pair-rmd17   8
#   table1-draws       6    table2-seeds      5    dna-paper-seeds  45    stability  120
#   table1-schnet-all 10    table3-seeds     35    dna-fast-seeds    5    ablation    40
#   table1-schnet-seeds 9    table2-pair     3    dna-pair          3    learning     4
#   stability-bounded 12     pair-long      90: shipped pair states as they are; rMD17 with four times the epochs
set -euo pipefail
data=$1 out=$2 seconds=$3
shift 3
export PYTHONPATH="$(cd "$(dirname "$0")/../src" && pwd)${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
python=${PYTHON:-python3}
molecules=${MOLECULES:-"aspirin benzene ethanol malonaldehyde naphthalene salicylic_acid toluene uracil"}
experiments=""

if [ ! -d "$out/pieces" ]; then
  "$python" "$(dirname "$0")/restore_results.py" --data "$data" --out "$out"
fi
if command -v nvidia-cuda-mps-control > /dev/null; then
  nvidia-cuda-mps-control -d 2> /dev/null || true # kernels of several processes then run at the same time
fi
mkdir -p "$out/logs"

reproduce() { # experiment, budget, parts...
  local experiment=$1 budget=$2 parts=()
  shift 2
  for part in "$@"; do parts+=(--part "$part"); done
  "$python" -m geomatt reproduce "$experiment" --device "${DEVICE:-cuda}" --data "$data" --out "$out" \
    --budget "$budget" ${EXTRA:-} "${parts[@]}"
}

start() { # experiment, parts...
  local experiment=$1 name="$*"
  name=${name// /-}
  shift
  reproduce "$experiment" "$seconds" "$@" > "$out/logs/$name.log" 2>&1 || echo "$name failed: see $out/logs/$name.log" &
  case " $experiments " in *" $experiment "*) ;; *) experiments="$experiments $experiment" ;; esac
}

for step in "$@"; do
  case $step in
    table1-schnet-all) for m in $molecules; do start table1 schnet-all "$m"; done ;; # one process for each molecule
    pair-rmd17) for m in $molecules; do start pair rmd17 size-l "$m"; done ;;
    pair-long) for m in $molecules; do start pair rmd17 size-long "$m"; done ;;
    table1-schnet-seeds) for m in aspirin ethanol; do start table1 schnet-seeds "$m"; done ;;
    table1-weighting | table1-draws | table2-untrained | table2-seeds | table3-seeds | dna-paper | \
      dna-paper-seeds | dna-fast-seeds | dna-pair) start "${step%%-*}" "${step#*-}" ;;
    table2-pair) start table2 pair pair-untrained ;;
    learning) # a step of SchNet takes the longest: one process for each number of frames
      for m in ethanol aspirin; do
        start learning pair $m
        start learning geomatt $m
        for n in 50 100 200 400 950; do start learning schnet $m frames-$n; done
      done ;;
    stability-bounded) # the large models in two processes, which together take less time
      start stability pair-s bounded
      for four in "aspirin naphthalene salicylic_acid toluene" "benzene ethanol malonaldehyde uracil"; do
        start stability pair bounded $four
      done ;;
    stability) for kind in pair pair-s fast paper; do start stability $kind; done ;; # with and without walls at once
    ablation) # networks without an engine of their own take the longest: one process each
      for parts in autograd gaussians symmetric both-products gated "seed-0 seed-1 seed-2" \
        "channels-32 channels-128 normal-elements" "rounds-2 rounds-4 rounds-5" \
        "functions-8 functions-24 functions-32" "radius-5 radius-4 squared rho-0.1" \
        "rho-0.001 no-clip no-average" "batch-5 batch-5-epochs batch-20 half-rate double-rate muon"; do
        start ablation $parts
      done ;;
    *) echo "unknown step $step" >&2; exit 1 ;;
  esac
done
wait
for experiment in $experiments; do
  reproduce "$experiment" 0 > "$out/logs/$experiment-report.log" 2>&1
  sed -n '/^Left to run/,$p' "$out/logs/$experiment-report.log"
done
