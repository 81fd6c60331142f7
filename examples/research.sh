#!/usr/bin/env bash
# A method from training to search, on 2 cores without a network: docs/research.md explains each step.
#
#     bash examples/research.sh [FOLDER]      a new folder, by default ./research
set -euo pipefail
folder=${1:-research}
if [ -e "$folder" ]; then
    echo "$folder exists already; choose a new folder, or remove it first" >&2
    exit 2
fi
mkdir -p "$folder"
cd "$folder"

run() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Sizes and learning rate for a few minutes on 2 cores. All other settings are as published for TVR.
small=(model.dim=128 model.max_frames=32 train.learning_rate=0.0003 train.warmup_share=0.1
       train.hard_negatives_from_epoch=20)

# A corpus of simulated features: train two methods on it and compare them on its test split.
run untrimmed data simulate toy --out data --videos 500 query_dim=128 video_dim=128
run untrimmed data untrained toy --root data
for method in gmmformer_v2 ms_sl; do
    run untrimmed train "$method" --data toy --root data --out "runs/$method" --seed 3 "${small[@]}" \
        train.batch_size=24 train.epochs=20
done
run untrimmed evaluate runs/gmmformer_v2 --against runs/ms_sl

# Real video: search the demo's reels without training.
run untrimmed demo demo
run untrimmed evaluate demo/library --queries demo/reels/truth.jsonl

# Use the same library as a data set (no video is decoded again), train a model on it, and search the library with it.
run untrimmed features --library demo/library --out data --name reels --captions demo/reels/truth.jsonl
run untrimmed train gmmformer_v2 --data reels --root data --out runs/reels "${small[@]}" \
    train.batch_size=6 train.epochs=8
run untrimmed index --model runs/reels --library demo/library
run untrimmed search "a cup of espresso on a wooden table" --library demo/library -k 3
run untrimmed evaluate demo/library --queries demo/reels/truth.jsonl
run untrimmed index --model none --library demo/library
