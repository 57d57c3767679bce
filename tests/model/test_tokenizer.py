from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from encoding_samples import HOSTILE, TEXTS, texts
from hypothesis import given
from hypothesis import strategies as st
from ladders import page_of
from tiny_dataset import write_tiny_dataset
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, processors, trainers
from tokenizers import Tokenizer as Library

from envgen.core.errors import ConfigError
from envgen.model.tokenizer import (
    Tokenizer,
    TokenizerConfig,
    dataset_lines,
    dataset_names,
    dataset_texts,
    train_tokenizer,
)
from envgen.pipelines.general.generate import GenerateConfig, generate
from envgen.store.dataset import Dataset

CONFIG = TokenizerConfig(
    vocab_size=400,
    control_tokens=("<|user|>", "<|end|>", "<think>"),
    single_tokens=("name", "price", "list_hotels", "Lotus Inn"),
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train_tokenizer(TEXTS, CONFIG)


def deepseek_like() -> Tokenizer:
    """A tokenizer.json as DeepSeek ships it: a BOS template, control tokens that are not special."""
    library = Library(models.BPE())
    splits = [r"\p{N}{1,3}", "[\u4e00-\u9fa5]+", r"[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|\s+(?!\S)|\s+"]
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(split), "isolated") for split in splits),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.decoder = decoders.ByteLevel()
    special = [
        "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
    ]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(TEXTS, trainer)
    library.add_tokens([AddedToken("<think>", special=False), AddedToken("</think>")])
    library.post_processor = processors.TemplateProcessing(
        single=f"{special[0]} $A", special_tokens=[(special[0], library.token_to_id(special[0]))]
    )
    return Tokenizer(library.to_str())


@given(text=st.one_of(texts, st.text()))
def test_round_trip_is_lossless(text: str) -> None:
    for tokenizer in (ROUND_TRIP, FOREIGN):
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.decode(tokenizer.encode_plain(text)) == text


ROUND_TRIP, FOREIGN = train_tokenizer(TEXTS, CONFIG), deepseek_like()


@pytest.mark.parametrize("tokenizer", [ROUND_TRIP, FOREIGN], ids=["own", "deepseek"])
@given(parts=st.lists(st.sampled_from(HOSTILE) | st.text(max_size=5), max_size=5))
def test_plain_text_never_becomes_a_control_token(tokenizer: Tokenizer, parts: list[str]) -> None:
    text = "".join([*parts, *tokenizer.control])
    assert not set(tokenizer.control.values()) & set(tokenizer.encode_plain(text))


def test_encode_without_plain_would_let_text_inject_control_tokens(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("a<|end|>")[-1] == tokenizer.token_id("<|end|>")
    assert FOREIGN.encode("a<think>")[-1] == FOREIGN.token_id("<think>")
    assert len(FOREIGN.encode_plain("<think>")) > 1
    assert FOREIGN.encode("a") == FOREIGN.encode_plain("a")  # no BOS sneaks in


def test_words_are_single_tokens_where_they_stand_alone(tokenizer: Tokenizer) -> None:
    def pieces(text: str) -> list[str]:
        return [tokenizer.decode([i]) for i in tokenizer.encode_plain(text)]

    assert "name" in pieces('{"name":1}')
    assert "list_hotels" in pieces("call list_hotels(city)")
    assert "Lotus Inn" in pieces("the Lotus Inn.")
    assert "name" not in pieces("names, hotel_name, name2")
    assert tokenizer.encode_plain("name") == [tokenizer.token_id("name")]


def test_each_digit_is_its_own_token_unless_they_may_merge() -> None:
    pages = ["in 2024, 2024, 2024, 2024 and 123456"] * 9
    single = train_tokenizer(pages, TokenizerConfig(vocab_size=300))
    assert [single.decode([i]) for i in single.encode(" 2024")] == [" ", "2", "0", "2", "4"]
    merged = train_tokenizer(pages, TokenizerConfig(vocab_size=300, split_digits=False))
    assert [merged.decode([i]) for i in merged.encode("2024")] == ["202", "4"]


def test_vocabulary_has_the_size_asked_for_and_every_byte() -> None:
    pages = [f"hotel {word} has rooms" for word in ("alpha", "beta", "gamma")] * 20
    tokenizer = train_tokenizer(pages, CONFIG.model_copy(update={"vocab_size": 280}))
    assert tokenizer.vocab_size == 280
    assert {tokenizer.token_bytes(i) for i in range(280)} >= {bytes([i]) for i in range(256)}


def test_no_merge_is_spent_on_words() -> None:
    pages = ["list_hotels list_hotels"] * 50
    config = TokenizerConfig(vocab_size=300, single_tokens=("list_hotels",))
    assert train_tokenizer(pages, config).vocab_size == 257


SCRIPT = """
import sys
from envgen.model.tokenizer import TokenizerConfig, train_tokenizer
from encoding_samples import TEXTS
config = TokenizerConfig(vocab_size=400, single_tokens=("name",), control_tokens=("<|end|>",))
train_tokenizer(TEXTS, config).save(sys.argv[1])
"""


def test_training_gives_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        helpers = str(Path(__file__).parents[1] / "helpers")
        code = f"import sys; sys.path.append({helpers!r}){SCRIPT}"
        subprocess.run([sys.executable, "-c", code, str(tmp_path / name)], check=True, timeout=60)
        files.append((tmp_path / name / "tokenizer.json").read_bytes())
    assert files[0] == files[1]


def test_saving_and_loading_change_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path / "m")
    text = "<|user|>The Lotus Inn \u2603 costs 180<|end|>"
    for same in (Tokenizer.load(tmp_path / "m"), pickle.loads(pickle.dumps(tokenizer))):
        assert same.encode(text) == tokenizer.encode(text)
        assert same.control == tokenizer.control
        assert same.words == tokenizer.words


def test_the_library_itself_reads_the_file(tokenizer: Tokenizer, tmp_path: Path) -> None:
    tokenizer.save(tmp_path)
    library = Library.from_file(str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert library.encode(text).ids == tokenizer.encode(text)
        assert library.decode(tokenizer.encode(text), skip_special_tokens=False) == text


def test_ids_that_are_no_text_decode_to_replacement_characters(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("\u2603")[:2]
    assert tokenizer.decode(half) == "\ufffd"
    assert tokenizer.decode([10**6, -1]) == "\ufffd\ufffd"


def test_token_id_needs_one_token(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="is not one token"):
        tokenizer.token_id("no such token")


def test_lone_surrogates_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="lone surrogate"):
        tokenizer.encode_plain("a\ud800")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"vocab_size": 257, "control_tokens": ("a", "b")}, "no room"),
        ({"control_tokens": ("a", "a")}, "twice"),
        ({"control_tokens": ("",)}, "empty"),
        ({"single_tokens": ("caf\xe9",)}, "ASCII"),
        ({"single_tokens": (" name",)}, "ASCII"),
        ({"single_tokens": ("7",)}, "not start with a digit"),
        ({"single_tokens": ("two\nlines",)}, "ASCII"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        TokenizerConfig.model_validate(settings)


def test_files_that_hold_no_byte_level_bpe_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't read"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"tokenizer\.json can't be read"):
        Tokenizer.load(tmp_path)
    words = Library(models.WordLevel({"a": 0}, unk_token="a"))
    (tmp_path / "tokenizer.json").write_text(words.to_str())
    with pytest.raises(ConfigError, match="must be a byte-level BPE"):
        Tokenizer.load(tmp_path)


def test_ids_that_would_need_a_table_of_gigabytes_are_refused(tokenizer: Tokenizer) -> None:
    described = json.loads(tokenizer._text)
    described["added_tokens"].append(
        {**described["added_tokens"][-1], "id": 1 << 31, "content": "x"}
    )
    described["model"]["vocab"]["zz"] = 1 << 31
    with pytest.raises(ConfigError, match="has a token 2147483648"):
        Tokenizer(json.dumps(described))


def test_a_dataset_gives_texts_and_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_tiny_dataset(tmp_path / "d")
    pages = list(dataset_texts(tmp_path / "d"))
    assert pages == list(dataset_texts(tmp_path / "d"))
    assert any("The hotels of a city with their prices" in page for page in pages)
    assert '[{"name":"Harbour View","price":300}' in "\n".join(pages)
    names = dataset_names(tmp_path / "d")
    assert {"list_hotels", "submit_result", "city", "price", "hotel"} <= set(names)
    config = TokenizerConfig(vocab_size=600, single_tokens=names)
    tokenizer = train_tokenizer(pages, config)
    assert len(tokenizer.encode_plain("list_hotels")) == 1


@pytest.mark.bwrap
def test_lines_that_prompts_share_become_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    summary = generate(
        GenerateConfig(
            pages=(page_of("office"),), environments=3, tasks_per_environment=1, max_level=1
        ),
        tmp_path / "d",
    )
    assert summary.tasks == 3
    prompts = [task.prompt for task in Dataset.open(tmp_path / "d").tasks.values()]
    lines = dataset_lines(tmp_path / "d")
    shared = [line for line in lines if all(line in prompt for prompt in prompts)]
    assert "```json" in shared
    plain = train_tokenizer(prompts, TokenizerConfig(vocab_size=500))
    short = train_tokenizer(prompts, TokenizerConfig(vocab_size=500, single_tokens=lines))
    for prompt in prompts:
        assert short.decode(short.encode_plain(prompt)) == prompt
        assert len(short.encode_plain(prompt)) < 0.6 * len(plain.encode_plain(prompt))


def test_without_the_library_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "try:\n    import envgen.model.tokenizer\n"
        "except ImportError as error:\n    print(error, '|', error.hint)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == (
        "the tokenizers package is not installed | pip install 'envgen-gym[train]'\n"
    )


def test_a_control_token_in_the_vocabulary_is_no_way_around(tokenizer: Tokenizer) -> None:
    """Llama's files let a whole piece match the vocabulary (``ignore_merges``)."""
    description = json.loads(FOREIGN._text)
    description["model"]["ignore_merges"] = True
    description["pre_tokenizer"] = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "use_regex": False,
        "trim_offsets": True,
    }
    description["model"]["vocab"]["<think>"] = FOREIGN.token_id("<think>")
    sly = Tokenizer(json.dumps(description))
    assert FOREIGN.token_id("<think>") not in sly.encode_plain("<think>")
