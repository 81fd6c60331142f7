"""faster-whisper is called correctly: a Whisper model with random weights, made here, gives words with times.

Its text is meaningless, so no test here measures recognition.
"""

import json

import numpy as np
import pytest

from untrimmed.passages.speech import Recogniser, Region, passages_of
from untrimmed.video.messages import SOUND_HZ

pytestmark = pytest.mark.check
NUM_LANGUAGES = 99
END, START, FIRST_TIME = 50257, 50258, 50364


def tokenizer():
    """Whisper's vocabulary in its size and special tokens; other tokens are bytes and made words."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {letter: i for i, letter in enumerate(sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()))}
    vocabulary |= {f"w{i}": i for i in range(len(vocabulary), END)}
    languages = ["en", *(f"l{i}" for i in range(1, NUM_LANGUAGES))]
    tasks = ["translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps"]
    times = [f"{i / 50:.2f}" for i in range(1501)]
    special = [f"<|{name}|>" for name in ["endoftext", "startoftranscript", *languages, *tasks, *times]]
    vocabulary |= {token: END + i for i, token in enumerate(special)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in special])
    assert made.token_to_id("<|0.00|>") == FIRST_TIME
    return made


@pytest.fixture(scope="module")
def recogniser(tmp_path_factory):
    pytest.importorskip("faster_whisper")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from ctranslate2.converters import TransformersConverter

    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("models") / "tiny"
    torch.manual_seed(0)
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    tokens = {"pad_token_id": END, "bos_token_id": END, "eos_token_id": END, "decoder_start_token_id": START}
    config = transformers.WhisperConfig(vocab_size=51865, **sizes, **heads, **tokens)
    transformers.WhisperForConditionalGeneration(config).save_pretrained(source)
    made = tokenizer()
    transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<|endoftext|>").save_pretrained(source)
    names = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<|endoftext|>"}
    (source / "tokenizer_config.json").write_text(json.dumps(names), encoding="utf-8")
    TransformersConverter(str(source)).convert(str(folder))
    made.save(str(folder / "tokenizer.json"))
    return Recogniser(folder)


def noise(seconds):
    return (0.1 * np.random.default_rng(0).standard_normal(round(seconds * SOUND_HZ))).astype(np.float32)


def test_words_have_times_in_the_sound_and_results_repeat(recogniser):
    first, second = recogniser.recognise(noise(5), "en"), recogniser.recognise(noise(5), "en")
    assert first == second
    words = [word for text in first for word, _ in text.words]
    assert words
    assert all(0 <= word.start_s <= word.end_s <= 5.1 for word in words)


def test_random_weights_say_nothing_plausible(recogniser):
    texts = recogniser.recognise(noise(5), "en")
    assert not any(text.is_plausible for text in texts)
    spans = [p for text in texts for p in passages_of(text, [Region(10.0, noise(5))], "en")]
    assert all(10 <= p.start_s <= p.end_s <= 15 for p in spans)
