"""Dual encoders with a few thousand random weights, saved to a folder like those on the hub.

Configurations, weights, tokenizers and image processor files are all made here; nothing is fetched. The widths of text,
image and shared space all differ, so that a swapped axis shows.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

SENTENCES = (
    "a dog runs along the beach",
    "three people sit in a kitchen",
    "a red car drives down the road",
    "the cat sleeps on a sofa",
    "一只狗在海边奔跑",
)
TEXT = {
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "initializer_range": 0.2,
}
VISION = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 32,
    "patch_size": 8,
    "initializer_range": 0.2,
}
SHARED_DIM = 20
CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]


def save_clip(folder: Path, *, seed: int = 0) -> Path:
    from transformers import CLIPConfig, CLIPModel

    ids = _save_clip_tokenizer(folder, length=16)
    text = {**TEXT, "vocab_size": len(ids), "max_position_embeddings": 16}
    text |= {"bos_token_id": ids["<|startoftext|>"], "eos_token_id": ids["<|endoftext|>"]}
    text["pad_token_id"] = ids["<|endoftext|>"]
    _save_processor(folder, "CLIPImageProcessor", _clip_processor())
    return _save(folder, CLIPModel, CLIPConfig, seed, text_config=text, vision_config=VISION, projection_dim=SHARED_DIM)


def save_siglip(folder: Path, *, seed: int = 0) -> Path:
    from transformers import SiglipConfig, SiglipModel

    size = save_bpe_tokenizer(folder, "PreTrainedTokenizerFast", length=12, lower_case=True)
    _save_processor(folder, "SiglipImageProcessor", {**_square(32, resample=3), **_half()})
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 12, "projection_size": 32}
    return _save(folder, SiglipModel, SiglipConfig, seed, text_config=text, vision_config=VISION)


def save_siglip2(folder: Path, *, seed: int = 0) -> Path:
    """SigLIP 2 of fixed resolution: a SigLIP model with a Gemma tokenizer and a bilinear resize."""
    from transformers import SiglipConfig, SiglipModel

    size = save_bpe_tokenizer(folder, "GemmaTokenizer", length=12, lower_case=False)
    _save_processor(folder, "SiglipImageProcessor", {**_square(32, resample=2), **_half()})
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 12, "projection_size": 32}
    return _save(folder, SiglipModel, SiglipConfig, seed, text_config=text, vision_config=VISION)


def save_siglip2_naflex(folder: Path, *, seed: int = 0) -> Path:
    """SigLIP 2 of native shape: images become up to 16 patches of 8 pixels."""
    from transformers import Siglip2Config, Siglip2Model

    size = save_bpe_tokenizer(folder, "GemmaTokenizer", length=12, lower_case=False)
    processor = {"do_resize": True, "resample": 2, "patch_size": 8, "max_num_patches": 16, **_half()}
    _save_processor(folder, "Siglip2ImageProcessor", processor)
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 12, "projection_size": 32}
    vision = {key: value for key, value in VISION.items() if key != "image_size"} | {"num_patches": 16}
    return _save(folder, Siglip2Model, Siglip2Config, seed, text_config=text, vision_config=vision)


def save_chinese_clip(folder: Path, *, seed: int = 0) -> Path:
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    size = _save_bert_tokenizer(folder, length=14)
    _save_processor(folder, "ChineseCLIPImageProcessor", {**_square(32, resample=3), **_clip_normal()})
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 14}
    config = {"text_config": text, "vision_config": VISION, "projection_dim": SHARED_DIM}
    return _save(folder, ChineseCLIPModel, ChineseCLIPConfig, seed, **config)


def save_altclip(folder: Path, *, seed: int = 0) -> Path:
    """AltCLIP: a RoBERTa text tower, whose positions are counted from the padding's position + 1."""
    from transformers import AltCLIPConfig, AltCLIPModel

    size = save_bpe_tokenizer(folder, "PreTrainedTokenizerFast", length=100, lower_case=False)
    _save_processor(folder, "CLIPImageProcessor", _clip_processor())
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 16, "project_dim": 28, "pad_token_id": 0}
    vision = {**VISION, "projection_dim": SHARED_DIM}
    return _save(
        folder, AltCLIPModel, AltCLIPConfig, seed, text_config=text, vision_config=vision, projection_dim=SHARED_DIM
    )


def save_align(folder: Path, *, seed: int = 0) -> Path:
    """ALIGN: convolutions for images. Only its processor scales to [-1, 1] by an offset."""
    from transformers import AlignConfig, AlignModel

    size = _save_bert_tokenizer(folder, length=14)
    processor = {**_square(32, resample=2), "do_center_crop": False, "rescale_factor": 1 / 127.5}
    processor |= {"rescale_offset": True, "do_rescale": True, "do_normalize": False, "include_top": False}
    _save_processor(folder, "EfficientNetImageProcessor", processor)
    vision = {
        "image_size": 32,
        "depth_divisor": 4,
        "in_channels": [32, 8],
        "out_channels": [8, SHARED_DIM],
        "kernel_sizes": [3, 3],
        "strides": [1, 2],
        "num_block_repeats": [1, 1],
        "expand_ratios": [1, 2],
        "depthwise_padding": [],
        "width_coefficient": 1.0,
        "depth_coefficient": 1.0,
        "hidden_dim": SHARED_DIM,
        "initializer_range": 0.2,
    }
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 14}
    config = {"text_config": text, "vision_config": vision, "projection_dim": SHARED_DIM}
    return _save(folder, AlignModel, AlignConfig, seed, **config)


def save_blip(folder: Path, *, seed: int = 0) -> Path:
    """BLIP: the text tower pools with its own layer, so its projection does not apply to single tokens."""
    from transformers import BlipConfig, BlipModel

    size = _save_bert_tokenizer(folder, length=14)
    _save_processor(folder, "BlipImageProcessor", {**_square(32, resample=3), **_clip_normal()})
    text = {**TEXT, "vocab_size": size, "max_position_embeddings": 14, "encoder_hidden_size": 32, "pad_token_id": 0}
    text |= {"bos_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
    config = {"text_config": text, "vision_config": VISION, "projection_dim": SHARED_DIM}
    return _save(folder, BlipModel, BlipConfig, seed, **config)


FAMILIES: dict[str, Callable[..., Path]] = {
    "clip": save_clip,
    "siglip": save_siglip,
    "siglip2": save_siglip2,
    "siglip2_naflex": save_siglip2_naflex,
    "chinese_clip": save_chinese_clip,
    "altclip": save_altclip,
    "align": save_align,
    "blip": save_blip,
}


def _save(folder: Path, model_class: Any, config_class: Any, seed: int, **config: Any) -> Path:
    torch.manual_seed(seed)
    model = model_class(config_class(**config)).eval()
    model.save_pretrained(folder, safe_serialization=True)
    return folder


def _save_processor(folder: Path, kind: str, settings: dict[str, Any]) -> None:
    text = json.dumps({"image_processor_type": kind, **settings})
    (folder / "preprocessor_config.json").write_text(text, encoding="utf-8")


def _clip_processor() -> dict[str, Any]:
    size = {"do_resize": True, "size": {"shortest_edge": 32}, "resample": 3}
    return {**size, "do_center_crop": True, "crop_size": {"height": 32, "width": 32}, **_clip_normal()}


def _square(side: int, *, resample: int) -> dict[str, Any]:
    return {"do_resize": True, "size": {"height": side, "width": side}, "resample": resample, "do_center_crop": False}


def _clip_normal() -> dict[str, Any]:
    normal = {"do_normalize": True, "image_mean": CLIP_MEAN, "image_std": CLIP_STD}
    return {"do_rescale": True, "rescale_factor": 1 / 255, **normal}


def _half() -> dict[str, Any]:
    return {**_clip_normal(), "image_mean": [0.5] * 3, "image_std": [0.5] * 3}


def _save_clip_tokenizer(folder: Path, *, length: int) -> dict[str, int]:
    """CLIP's byte-level BPE as vocab.json and merges.txt; returns the vocabulary."""
    tokenizer = Tokenizer(models.BPE(end_of_word_suffix="</w>", unk_token="<|endoftext|>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        end_of_word_suffix="</w>",
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    ids = dict(model["vocab"])
    for letter in pre_tokenizers.ByteLevel.alphabet():
        ids.setdefault(f"{letter}</w>", len(ids))
    for special in ("<|startoftext|>", "<|endoftext|>"):
        ids[special] = len(ids)
    merges = ["#version: 0.2", *(pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"])]
    _write_json(folder / "vocab.json", ids)
    (folder / "merges.txt").write_text("\n".join(merges) + "\n", encoding="utf-8")
    settings = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"}
    settings["unk_token"] = "<|endoftext|>"
    _write_tokenizer_config(folder, "CLIPTokenizer", length, settings)
    return ids


def save_bpe_tokenizer(folder: Path, kind: str, *, length: int, lower_case: bool) -> int:
    """A BPE like Gemma's: spaces become a mark, and an end token is added. Returns the size."""
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    space = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), space]) if lower_case else space
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    tokenizer.train_from_iterator(
        [*SENTENCES, *(sentence.upper() for sentence in SENTENCES)],
        trainers.BpeTrainer(vocab_size=300, special_tokens=specials, show_progress=False),
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A <eos>", pair="$A <eos> $B <eos>", special_tokens=[("<eos>", 1)]
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        name: f"<{name.removesuffix('_token')}>" for name in ("pad_token", "eos_token", "bos_token", "unk_token")
    }
    settings |= {"add_bos_token": False, "add_eos_token": True, "padding_side": "right"}
    if kind == "GemmaTokenizer":
        settings["model_input_names"] = ["input_ids"]
    _write_tokenizer_config(folder, kind, length, settings)
    return tokenizer.get_vocab_size()


def _save_bert_tokenizer(folder: Path, *, length: int) -> int:
    """BERT's vocabulary file: every word and every character of the sentences; returns the size."""
    letters = sorted({letter for sentence in SENTENCES for letter in sentence if letter != " "})
    words = sorted({word for sentence in SENTENCES for word in sentence.split() if len(word) > 1})
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{letter}" for letter in letters),
        *words,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n", encoding="utf-8")
    _write_tokenizer_config(folder, "BertTokenizer", length, {"do_lower_case": True})
    return len(vocabulary)


def _write_tokenizer_config(folder: Path, kind: str, length: int, settings: dict[str, Any]) -> None:
    _write_json(folder / "tokenizer_config.json", {"tokenizer_class": kind, "model_max_length": length, **settings})


def _write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
