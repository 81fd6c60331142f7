#!/usr/bin/env bash
# A method from training to search, on 2 cores without a network: docs/research.md tells what each step shows.
#
#     bash examples/research.sh [FOLDER]      a new folder; the default is ./research
set -euo pipefail
folder=${1:-research}
if [ -e "$folder" ]; then
    echo "$folder is already there; name a new folder, or remove it first" >&2
    exit 2
fi
mkdir -p "$folder"
cd "$folder"

tell() {
    printf '\n$ %s\n' "$*"
    "$@"
}

# Sizes and rate for minutes on 2 cores; all else is as published for TVR.
small=(model.dim=128 model.max_frames=32 train.learning_rate=0.0003 train.warmup_share=0.1
       train.hard_negatives_from_epoch=20)

# A corpus of simulated features: train two methods on it and compare them on its test split.
tell untrimmed data simulate toy --out data --videos 500 query_dim=128 video_dim=128
tell untrimmed data untrained toy --root data
for method in gmmformer_v2 ms_sl; do
    tell untrimmed train "$method" --data toy --root data --out "runs/$method" --seed 3 "${small[@]}" \
        train.batch_size=24 train.epochs=20
done
tell untrimmed evaluate runs/gmmformer_v2 --against runs/ms_sl

# Real video: the demo's reels, searched without training first.
tell untrimmed demo demo
tell untrimmed evaluate demo/library --queries demo/reels/truth.jsonl

# The same library as a data set (nothing is decoded again), a model trained on it, and the library searched with it.
tell untrimmed features --library demo/library --out data --name reels --captions demo/reels/truth.jsonl
tell untrimmed train gmmformer_v2 --data reels --root data --out runs/reels "${small[@]}" \
    train.batch_size=6 train.epochs=8
tell untrimmed index --model runs/reels --library demo/library
tell untrimmed search "a cup of espresso on a wooden table" --library demo/library -k 3
tell untrimmed evaluate demo/library --queries demo/reels/truth.jsonl
tell untrimmed index --model none --library demo/library
