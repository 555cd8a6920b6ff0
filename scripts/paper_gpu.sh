#!/usr/bin/env bash
# Run parts of the paper's experiments side by side on one GPU, and add them to the committed results.
#
#   bash scripts/paper_gpu.sh DATA OUT SECONDS STEP...
#
# DATA: folder with md17/ (and gfn2/ for the DNA steps). OUT: folder for results; run the same command again
# to continue. SECONDS: time for the training. Steps: table2, weighting, draws, schnet, schnet-seeds,
# table3-seeds, dna-fast-seeds, dna-paper, dna-paper-seeds, ablation. Then copy OUT/*.json to results/ and run
# python -m geomatt.reproduce.docs. DEVICE=cpu EXTRA=--quick tries it out on a processor.
set -euo pipefail
data=$1 out=$2 seconds=$3
shift 3
export PYTHONPATH="$(cd "$(dirname "$0")/../src" && pwd)${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
python=${PYTHON:-python3}
molecules="aspirin benzene ethanol malonaldehyde naphthalene salicylic_acid toluene uracil"
tables=""

if [ ! -d "$out/pieces" ] && [ "$*" != ablation ]; then # of which no piece is committed
  "$python" "$(dirname "$0")/restore_results.py" --data "$data" --out "$out"
fi
if command -v nvidia-cuda-mps-control > /dev/null; then
  nvidia-cuda-mps-control -d 2> /dev/null || true # kernels of several processes then run at the same time
fi
mkdir -p "$out/logs"

reproduce() { # table, budget, parts...
  local table=$1 budget=$2 parts=()
  shift 2
  for part in "$@"; do parts+=(--part "$part"); done
  "$python" -m geomatt reproduce "$table" --device "${DEVICE:-cuda}" --data "$data" --out "$out" \
    --budget "$budget" ${EXTRA:-} "${parts[@]}"
}

start() { # name of the log, then as `reproduce` without the budget
  local name=$1 table=$2
  shift 2
  reproduce "$table" "$seconds" "$@" > "$out/logs/$name.log" 2>&1 || echo "$name failed: see $out/logs/$name.log" &
  case " $tables " in *" $table "*) ;; *) tables="$tables $table" ;; esac
}

for step in "$@"; do
  case $step in
    table2) start table2 table2 untrained seeds ;;
    weighting | draws) start "$step" table1 "$step" ;;
    schnet) for m in $molecules; do start "schnet-$m" table1 schnet-all "$m"; done ;;
    schnet-seeds) for m in aspirin ethanol; do start "schnet-seeds-$m" table1 schnet-seeds "$m"; done ;;
    table3-seeds) start table3-seeds table3 seeds ;;
    dna-fast-seeds | dna-paper | dna-paper-seeds) start "$step" dna "${step#dna-}" ;;
    ablation) # networks without an engine of their own take the longest: one process each
      for parts in autograd gaussians symmetric both-products gated "seed-0 seed-1 seed-2" \
        "channels-32 channels-128 normal-elements" "rounds-2 rounds-4 rounds-5" \
        "functions-8 functions-24 functions-32" "radius-5 radius-4 squared rho-0.1" \
        "rho-0.001 no-clip no-average" "batch-5 batch-20 half-rate double-rate"; do
        start "ablation-${parts%% *}" ablation $parts
      done ;;
    *) echo "unknown step $step" >&2; exit 1 ;;
  esac
done
wait
for table in $tables; do
  reproduce "$table" 0 > "$out/logs/$table-report.log" 2>&1
  sed -n '/^Left to run/,$p' "$out/logs/$table-report.log"
done
